// SPDX-License-Identifier: MIT
//
// Text, paths and lists between Python and C++.
//
// Source and names are UTF-8. Paths and compiler flags are bytes of the file system's encoding with
// surrogateescape, so that every name that Linux allows survives the way there and back. Output of
// programs is decoded with replacement characters. Not for kernel arguments: see arguments.h.
//
//     const std::filesystem::path path = to_path(argument, "include_dirs");
//
// Errors: TypeError, ValueError or OverflowError that names the argument (`what`), as PythonError.
// Thread-safety: the GIL is held.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "python/bindings/object.h"

namespace deep_jit::python {

// --- From Python ---

std::string to_utf8(PyObject* text, const char* what);
std::string to_native(PyObject* text, const char* what, const char* expected = "str");
std::filesystem::path to_path(PyObject* text, const char* what);
std::vector<std::string> to_native_list(PyObject* sequence, const char* what);
std::vector<std::filesystem::path> to_path_list(PyObject* sequence, const char* what);
bool to_bool(PyObject* value, const char* what);
int to_int(PyObject* value, const char* what);

// --- To Python ---

Ref from_native(std::string_view text);
Ref from_output(std::string_view text);
Ref from_native_list(const std::vector<std::string>& texts);

}  // namespace deep_jit::python
