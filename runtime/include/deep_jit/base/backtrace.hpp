// SPDX-License-Identifier: MIT
//
// Where an exception was thrown from: the C++ functions above the throw, as text.
//
// What: at most 16 frames, most recent first, up to the first frame of the Python interpreter:
//     #0 libkernels.so+0x1234 mylib::launch(int) at launch.cc:42
// Function names come from the dynamic symbol table, so that static functions need more: with
// libdw.so.1 (elfutils) on the machine, names and lines are read from debug information. Nothing is
// needed to build: the library is opened when the first trace is made, its few functions are
// declared here.
//
// When not: traces are off until `enable_traces(true)`: making one takes milliseconds, and many
// exceptions are caught and answered. A Runtime turns them on when JIT_DEBUG is set.
//
// Example:
//     exception::enable_traces(true);
//     ... what() of every exception::Exception made from now on ends with its trace
//
// Errors: none; what is not known is left out.
// Thread-safety: all of it. Not for signal handlers.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <format>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace deep_jit::exception {

// Returns what it was before.
bool enable_traces(bool is_enabled) noexcept;

// "" when traces are off or nothing is known; else "\nC++ trace (most recent call first):" and a
// line for each frame.
std::string trace_text() noexcept;

// --- Inline implementations ---

namespace detail {

inline constexpr std::size_t kMaxFrames = 16;

inline std::atomic<bool>& traces_flag() {
  static std::atomic<bool> flag = false;
  return flag;
}

struct Addresses {
  std::array<std::uintptr_t, kMaxFrames * 2> values = {};
  std::size_t count = 0;
};

inline _Unwind_Reason_Code collect_address(_Unwind_Context* context, void* argument) {
  auto& addresses = *static_cast<Addresses*>(argument);
  const std::uintptr_t address = _Unwind_GetIP(context);
  if (address == 0 or addresses.count == addresses.values.size()) {
    return _URC_END_OF_STACK;
  }
  // A return address: the call is before it, maybe in the line before.
  addresses.values[addresses.count++] = address - 1;
  return _URC_NO_REASON;
}

inline std::string demangle(const char* name) {
  int status = -1;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 and text != nullptr ? text.get() : name;
}

// The interpreter itself or a function of its C interface: what is above is Python.
inline bool is_python_frame(const Dl_info& info) {
  const std::string_view path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  const std::string_view symbol = info.dli_sname == nullptr ? "" : info.dli_sname;
  return file.starts_with("libpython") or file.starts_with("python") or symbol.starts_with("_Py") or
         symbol.starts_with("Py");
}

// libdw's functions, as much of them as is needed. Their types are pointers to what only it knows.
class DebugInformation {
 public:
  struct Location {
    std::string function;
    std::string file_and_line;
  };

  // Null where there is no such library.
  static DebugInformation* get() {
    static DebugInformation* const instance = [] {
      auto made = std::make_unique<DebugInformation>();
      return made->is_open_ ? made.release() : nullptr;  // never destroyed
    }();
    return instance;
  }

  DebugInformation() {
    library_ = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    is_open_ = library_ != nullptr and load(begin_, "dwfl_begin") and load(end_, "dwfl_end") and
               load(report_, "dwfl_linux_proc_report") and load(report_end_, "dwfl_report_end") and
               load(module_, "dwfl_addrmodule") and load(name_, "dwfl_module_addrname") and
               load(source_, "dwfl_module_getsrc") and load(line_, "dwfl_lineinfo") and
               load(callbacks_.find_elf, "dwfl_linux_proc_find_elf");
  }

  // Reads what is loaded now: libraries come and go between two traces.
  void start() {
    session_ = begin_(&callbacks_);
    if (session_ != nullptr) {
      report_(session_, ::getpid());
      report_end_(session_, nullptr, nullptr);
    }
  }
  void stop() {
    if (session_ != nullptr) {
      end_(session_);
    }
    session_ = nullptr;
  }

  Location find(std::uintptr_t address) const {
    Location location;
    void* const module = session_ == nullptr ? nullptr : module_(session_, address);
    if (module == nullptr) {
      return location;
    }
    if (const char* name = name_(module, address)) {
      location.function = demangle(name);
    }
    int line = 0;
    void* const source = source_(module, address);
    const char* const file =
        source == nullptr ? nullptr : line_(source, nullptr, &line, nullptr, nullptr, nullptr);
    if (file != nullptr) {
      location.file_and_line = std::format("{}:{}", file, line);
    }
    return location;
  }

  std::mutex mutex;  // libdw does not lock

 private:
  template <class Function>
  bool load(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function != nullptr;
  }

  struct Callbacks {
    void (*find_elf)() = nullptr;
    // None: libdw's own may ask a server on the network.
    int (*find_debuginfo)() = [] { return -1; };
    void (*section_address)() = nullptr;
    char** debuginfo_path = nullptr;
  };

  void* library_ = nullptr;
  bool is_open_ = false;
  void* session_ = nullptr;
  Callbacks callbacks_;
  void* (*begin_)(const Callbacks*) = nullptr;
  void (*end_)(void*) = nullptr;
  int (*report_)(void*, pid_t) = nullptr;
  int (*report_end_)(void*, void*, void*) = nullptr;
  void* (*module_)(void*, std::uint64_t) = nullptr;
  const char* (*name_)(void*, std::uint64_t) = nullptr;
  void* (*source_)(void*, std::uint64_t) = nullptr;
  const char* (*line_)(void*, std::uint64_t*, int*, int*, std::uint64_t*, std::uint64_t*) = nullptr;
};

inline std::string describe_frames(const Addresses& addresses, DebugInformation* debug) {
  std::string text;
  std::size_t number = 0;
  for (std::size_t i = 0; i < addresses.count and number < kMaxFrames; ++i) {
    const std::uintptr_t address = addresses.values[i];
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(address), &info) == 0) {
      info = {};
    }
    if (is_python_frame(info)) {
      break;
    }
    DebugInformation::Location location;
    if (debug != nullptr) {
      location = debug->find(address);
    }
    if (location.function.empty() and info.dli_sname != nullptr) {
      location.function = demangle(info.dli_sname);
    }
    // How the exception itself was made is of no interest.
    if (number == 0 and location.function.find("deep_jit::exception::") != std::string::npos) {
      text.clear();
      continue;
    }
    const std::string_view path = info.dli_fname == nullptr ? "?" : info.dli_fname;
    text += std::format("\n  #{} {}+{:#x}", number++, path.substr(path.rfind('/') + 1),
                        address - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
    if (not location.function.empty()) {
      text += " " + location.function;
    }
    if (not location.file_and_line.empty()) {
      text += " at " + location.file_and_line;
    }
  }
  return text;
}

}  // namespace detail

inline bool enable_traces(bool is_enabled) noexcept {
  return detail::traces_flag().exchange(is_enabled, std::memory_order_relaxed);
}

inline std::string trace_text() noexcept {
  if (not detail::traces_flag().load(std::memory_order_relaxed)) {
    return {};
  }
  try {
    detail::Addresses addresses;
    _Unwind_Backtrace(&detail::collect_address, &addresses);
    std::string frames;
    if (detail::DebugInformation* debug = detail::DebugInformation::get()) {
      const std::lock_guard guard(debug->mutex);
      debug->start();
      frames = detail::describe_frames(addresses, debug);
      debug->stop();
    } else {
      frames = detail::describe_frames(addresses, nullptr);
    }
    return frames.empty() ? frames : "\nC++ trace (most recent call first):" + frames;
  } catch (...) {
    return {};
  }
}

}  // namespace deep_jit::exception
