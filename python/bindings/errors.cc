// SPDX-License-Identifier: MIT
#include "python/bindings/errors.h"

#include <exception>
#include <new>

#include "deep_jit/base/exception.hpp"
#include "python/bindings/convert.h"

namespace deep_jit::python {
namespace {

void set_attribute(const Ref& object, const char* name, const Ref& value) {
  if (PyObject_SetAttrString(object.get(), name, value.get()) != 0) throw PythonError{};
}

Ref new_exception(PyObject* type, std::string_view message) {
  const Ref text = from_output(message);
  return checked(PyObject_CallFunctionObjArgs(type, text.get(), nullptr));
}

Ref from_optional_index(const std::optional<Py_ssize_t>& index) {
  return index ? checked(PyLong_FromSsize_t(*index)) : Ref::borrow(Py_None);
}

// The options reach us as JSON text; users want to look into them.
Ref parse_json(const std::string& text) {
  if (text.empty()) return checked(PyDict_New());
  const Ref json = checked(PyImport_ImportModule("json"));
  const Ref argument = from_output(text);
  return checked(PyObject_CallMethod(json.get(), "loads", "O", argument.get()));
}

void set_compile_error(const State& state, const exception::CompileError& error) {
  const Ref raised = new_exception(state.compile_error, error.what());
  set_attribute(raised, "log", from_output(error.log));
  set_attribute(raised, "command", from_native_list(error.command));
  set_attribute(raised, "options", parse_json(error.options));
  set_attribute(raised, "source_path", from_native(error.source_path));
  set_attribute(raised, "source", from_output(error.source));
  PyErr_SetObject(state.compile_error, raised.get());
}

void set_launch_error(const State& state, std::string_view message, std::string_view kernel,
                      std::optional<Py_ssize_t> parameter) {
  const Ref raised = new_exception(state.launch_error, message);
  set_attribute(raised, "kernel", from_output(kernel));
  set_attribute(raised, "parameter", from_optional_index(parameter));
  PyErr_SetObject(state.launch_error, raised.get());
}

void set_plain_error(PyObject* type, std::string_view message) {
  const Ref raised = new_exception(type, message);
  PyErr_SetObject(type, raised.get());
}

void translate(const State& state, std::string_view kernel) {
  try {
    throw;
  } catch (const PythonError&) {
    throw;
  } catch (const ArgumentError& error) {
    set_launch_error(state, error.message, error.kernel, error.parameter);
  } catch (const exception::CompileError& error) {
    set_compile_error(state, error);
  } catch (const exception::CacheError& error) {
    set_plain_error(state.cache_error, error.what());
  } catch (const exception::LaunchError& error) {
    set_launch_error(state, error.what(), kernel, std::nullopt);
  } catch (const exception::Interrupted&) {
    // Reached only when another thread's interrupt ended work that this thread waited for: our own
    // interrupt has left its Python exception, which the caller has seen already.
    set_plain_error(PyExc_KeyboardInterrupt,
                    "the compilation that this call waited for was interrupted");
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    set_plain_error(state.deep_jit_error, error.what());
  } catch (...) {
    set_plain_error(state.deep_jit_error,
                    "the C++ core threw something that is not a std::exception");
  }
}

Ref add_exception(PyObject* module, const char* name, const char* doc, PyObject* base,
                  const Ref& fields) {
  const std::string qualified = std::string("deep_jit.") + name;
  Ref type = checked(PyErr_NewExceptionWithDoc(qualified.c_str(), doc, base, fields.get()));
  if (PyModule_AddObjectRef(module, name, type.get()) != 0) throw PythonError{};
  return type;
}

// Class attributes, so that an instance made by hand (or by pickle) has every field.
template <class... Pairs>
Ref make_fields(const Pairs&... pairs) {
  Ref fields = checked(PyDict_New());
  const auto add = [&](const std::pair<const char*, Ref>& pair) {
    if (PyDict_SetItemString(fields.get(), pair.first, pair.second.get()) != 0) throw PythonError{};
  };
  (add(pairs), ...);
  return fields;
}

std::pair<const char*, Ref> field(const char* name, PyObject* value) {
  return {name, checked(value)};
}

}  // namespace

void add_exceptions(PyObject* module, State& state) {
  state.deep_jit_error =
      add_exception(
          module, "DeepJITError",
          "Base of every error of this package. Raised itself for wrong use and for an environment "
          "that cannot work (no compiler, bad variable).",
          PyExc_RuntimeError, make_fields())
          .release();
  state.compile_error =
      add_exception(
          module, "CompileError",
          "The compiler refused the source, or produced nothing usable.\n\n"
          "Attributes:\n"
          "    log (str): everything that the compiler wrote, undecodable bytes replaced.\n"
          "    command (list[str]): its argument vector.\n"
          "    options (dict[str, object]): the merged compiler options.\n"
          "    source_path (str): the file that was compiled; gone unless debugging kept it.\n"
          "    source (str): the kernel's source as it was given.",
          state.deep_jit_error,
          make_fields(field("log", PyUnicode_FromString("")), field("command", PyList_New(0)),
                      field("options", PyDict_New()),
                      field("source_path", PyUnicode_FromString("")),
                      field("source", PyUnicode_FromString(""))))
          .release();
  state.cache_error =
      add_exception(module, "CacheError",
                    "The disk cache cannot be written (full, not permitted, not a directory). "
                    "Damaged entries raise nothing: they are rebuilt and counted.",
                    state.deep_jit_error, make_fields())
          .release();
  state.launch_error =
      add_exception(module, "LaunchError",
                    "A kernel cannot be launched as asked, or threw while it ran.\n\n"
                    "Attributes:\n"
                    "    kernel (str): the kernel's name.\n"
                    "    parameter (int | None): the parameter it is about, counted from 0.",
                    state.deep_jit_error,
                    make_fields(field("kernel", PyUnicode_FromString("")),
                                field("parameter", Ref::borrow(Py_None).release())))
          .release();
}

void set_error_from_exception(const State& state, std::string_view kernel) noexcept {
  // A signal handler's exception wins over the C++ error that it brought about.
  if (PyErr_Occurred() != nullptr) return;
  try {
    translate(state, kernel);
  } catch (const PythonError&) {
    if (PyErr_Occurred() == nullptr)
      PyErr_SetString(PyExc_SystemError, "a CPython call failed without an error");
  } catch (...) {
    PyErr_NoMemory();
  }
}

void add_place(Py_ssize_t index) noexcept {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (type == PyExc_TypeError || type == PyExc_ValueError || type == PyExc_OverflowError) {
    PyErr_Format(type, "kernels[%zd]: %S", index, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  } else {
    PyErr_Restore(type, value, traceback);
  }
}

Ref to_python_exception(const State& state, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (...) {
    set_error_from_exception(state, {});
  }
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref owned_type{type};
  const Ref owned_traceback{traceback};
  return checked(value);
}

}  // namespace deep_jit::python
