// SPDX-License-Identifier: MIT
//
// Launch options from Python: grid and block, and the keyword arguments of a launch.
//
// What: a grid, block or cluster is an int or a tuple of up to three; the other options have the
// names and types of the backend's LaunchOptions (visit_fields), so that a new one needs no line
// here.
// When not: compiler options (options.h); whether a value makes sense is the backend's to say.
//
//     options.grid_dim = to_dim3<host::Dim3>("scale", argument, "grid");
//     set_launch_option(state, options, "scale", "launch", name, value);
//
// Errors: ArgumentError, which names the kernel, for dimensions and numbers out of range; TypeError
// as PythonError for an unknown keyword or another type.
// Thread-safety: the GIL is held.
#pragma once

#include <cstddef>
#include <format>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "python/bindings/convert.h"
#include "python/bindings/errors.h"
#include "python/bindings/object.h"
#include "python/bindings/options.h"
#include "python/bindings/state.h"
#include "python/bindings/stream.h"

namespace deep_jit::python {

// One dimension: an int of at most 32 bits. Zero is for the backend to refuse, with the whole
// shape.
unsigned to_extent(const std::string& kernel, PyObject* value, const char* what);

// Fills up to three dimensions from an int, a tuple or a list.
void to_extents(const std::string& kernel, PyObject* value, const char* what, unsigned* extents);

template <class Dim3>
Dim3 to_dim3(const std::string& kernel, PyObject* value, const char* what) {
  unsigned extents[3] = {1, 1, 1};
  to_extents(kernel, value, what, extents);
  Dim3 dim;
  dim.x = extents[0];
  dim.y = extents[1];
  dim.z = extents[2];
  return dim;
}

// What each type of a launch option takes.
struct AssignLaunchOption {
  State& state;
  const std::string& kernel;

  void operator()(std::optional<int>& option, PyObject* value, const char* name) const {
    if (!PyIndex_Check(value) || PyBool_Check(value)) {
      option = to_int(value, name);  // Its TypeError.
      return;
    }
    const Ref number = checked(PyNumber_Index(value));
    int overflow = 0;
    const long long result = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
    if (overflow != 0 || result < std::numeric_limits<int>::min() ||
        result > std::numeric_limits<int>::max()) {
      throw ArgumentError{
          std::format("cannot launch kernel `{}`: {} must fit into 32 bits", kernel, name), kernel,
          std::nullopt};
    }
    option = static_cast<int>(result);
  }
  void operator()(std::optional<bool>& option, PyObject* value, const char* name) const {
    option = to_bool(value, name);
  }
  template <class Stream>
  void operator()(std::optional<Stream*>& option, PyObject* value, const char*) const {
    option = static_cast<Stream*>(to_stream(state, value));
  }
  template <class Dim3>
    requires requires(Dim3 dim) { dim.x + dim.y + dim.z; }
  void operator()(std::optional<Dim3>& option, PyObject* value, const char* name) const {
    option = to_dim3<Dim3>(kernel, value, name);
  }
};

// The keywords beside grid and block.
struct IsLaunchKeyword {
  constexpr bool operator()(std::string_view name) const {
    return name != "grid_dim" && name != "block_dim";
  }
};

// `function`: whose keyword argument it is, for error texts.
template <class LaunchOptions>
void set_launch_option(State& state, LaunchOptions& options, const std::string& kernel,
                       const char* function, PyObject* name, PyObject* value) {
  set_option(options, function, name, value, AssignLaunchOption{state, kernel}, IsLaunchKeyword{});
}

}  // namespace deep_jit::python
