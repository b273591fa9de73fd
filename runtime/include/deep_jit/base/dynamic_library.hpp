// SPDX-License-Identifier: MIT
//
// A shared library, loaded at run time and closed at the end of its owner's life.
//
// What: dlopen with RTLD_NOW | RTLD_LOCAL: a missing symbol is reported while loading, not in the
// middle of a launch, and the library's symbols do not change what others resolve.
//
// When not: the dynamic linker keeps one copy per file: a file that was overwritten in place while
// loaded is not loaded again. Give every build a path of its own.
//
// Example:
//     DynamicLibrary library = DynamicLibrary::open(directory / "kernel.so");
//     auto* get_version = library.symbol<int()>("get_version");
//
// Errors: panics with the path, the symbol and the dynamic linker's own text.
// Thread-safety: opening and look-ups from any thread. Nothing may run in the library when it is
// closed.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <utility>

#include "deep_jit/base/exception.hpp"

namespace deep_jit {

class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  DynamicLibrary(DynamicLibrary&& other) noexcept
      : path_(std::move(other.path_)), handle_(std::exchange(other.handle_, nullptr)) {}
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    if (this != &other) {
      close();
      path_ = std::move(other.path_);
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~DynamicLibrary() { close(); }

  // A path with a '/' is that file; a bare name is searched as the dynamic linker does.
  static DynamicLibrary open(const std::filesystem::path& path);

  // Address of a function (T = its type, as in symbol<int(float)>) or of an object.
  template <class T>
  T* symbol(const std::string& name) const;

  // As symbol; nullptr when the library has no such symbol.
  template <class T>
  T* try_symbol(const std::string& name) const;

  bool is_open() const { return handle_ != nullptr; }
  const std::filesystem::path& path() const { return path_; }

  // Closes now; nothing happens when it is closed already.
  void close() noexcept {
    if (handle_ != nullptr) {
      ::dlclose(std::exchange(handle_, nullptr));
    }
  }

 private:
  std::filesystem::path path_;
  void* handle_ = nullptr;
};

// --- Inline implementations ---

inline DynamicLibrary DynamicLibrary::open(const std::filesystem::path& path) {
  DJ_HOST_ASSERT(not path.empty(), "path of a dynamic library must not be empty");
  DynamicLibrary library;
  library.path_ = path;
  library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* const reason = ::dlerror();
    DJ_PANIC("failed to load dynamic library {}: {}", path.string(),
             reason == nullptr ? "unknown reason" : reason);
  }
  return library;
}

template <class T>
T* DynamicLibrary::try_symbol(const std::string& name) const {
  DJ_HOST_ASSERT(handle_ != nullptr,
                 "dynamic library must be open to look up symbol '{}' (path: '{}')", name,
                 path_.string());
  return reinterpret_cast<T*>(::dlsym(handle_, name.c_str()));
}

template <class T>
T* DynamicLibrary::symbol(const std::string& name) const {
  T* const address = try_symbol<T>(name);
  if (address == nullptr) {
    DJ_PANIC("failed to find symbol '{}' in dynamic library {}", name, path_.string());
  }
  return address;
}

}  // namespace deep_jit
