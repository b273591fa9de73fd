// SPDX-License-Identifier: MIT
#include "python/bindings/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <format>
#include <limits>
#include <new>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/buffers.h"
#include "python/bindings/cuda_arrays.h"
#include "python/bindings/loaded_types.h"

namespace deep_jit::python {
namespace {

// --- Words for error messages ---

std::string describe(ParameterKind kind, std::size_t size) {
  switch (kind) {
    case ParameterKind::kPointer:
      return "pointer";
    case ParameterKind::kBool:
      return "bool";
    case ParameterKind::kSigned:
      return std::format("int{}", size * 8);
    case ParameterKind::kUnsigned:
      return std::format("uint{}", size * 8);
    case ParameterKind::kFloat:
      return std::format("float{}", size * 8);
    case ParameterKind::kSized:
      return std::format("{} bytes", size);
    case ParameterKind::kStruct:
    case ParameterKind::kUnknown:
      break;
  }
  return std::format("struct of {} bytes", size);
}

std::string describe(const Parameter& parameter) {
  if (parameter.kind != ParameterKind::kPointer) return describe(parameter.kind, parameter.size);
  return std::format("{}{}*", parameter.element_is_const ? "const " : "",
                     parameter.element_kind == ParameterKind::kUnknown
                         ? "void"
                         : describe(parameter.element_kind, parameter.element_size));
}

std::string describe(const ArrayAddress& array) {
  switch (array.type_kind) {
    case 'b':
      return "bool";
    case 'i':
      return std::format("int{}", array.item_size * 8);
    case 'u':
      return std::format("uint{}", array.item_size * 8);
    case 'f':
      return std::format("float{}", array.item_size * 8);
    case 'c':
      return std::format("complex{}", array.item_size * 8);
    default:
      return std::format("items of {} bytes (kind '{}')", array.item_size, array.type_kind);
  }
}

std::string type_name(PyObject* object) {
  const Ref name =
      checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  const char* text = PyUnicode_AsUTF8AndSize(name.get(), nullptr);
  if (text == nullptr) throw PythonError{};
  return text;
}

// repr() cut to a length that fits into one line. Python refuses to print integers of over 4300
// digits.
std::string short_repr(PyObject* object) {
  constexpr std::size_t kLongest = 60;
  const Ref repr{PyObject_Repr(object)};
  const char* text = repr ? PyUnicode_AsUTF8AndSize(repr.get(), nullptr) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    return "a value that cannot be printed";
  }
  std::string result = text;
  if (result.size() > kLongest) result = result.substr(0, kLongest) + "...";
  std::ranges::replace(result, '\n', ' ');
  return result;
}

// --- One argument ---

// Which argument is being converted, for error messages.
struct Place {
  State& state;
  const Signature& signature;
  Py_ssize_t index;

  const Parameter& parameter() const {
    return signature.parameters[static_cast<std::size_t>(index)];
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw ArgumentError{std::format("cannot launch kernel `{}`: argument for parameter {} ({}) {}",
                                    signature.kernel, index, describe(parameter()), problem),
                        signature.kernel, index};
  }

  [[noreturn]] void refuse_type(PyObject* argument, const char* expected) const {
    refuse(std::format("must be {}, not {} ({})", expected, type_name(argument),
                       short_repr(argument)));
  }
};

template <class T>
void store(void* slot, T value) {
  std::memcpy(slot, &value, sizeof(value));
}

// A Python int, float or bool for a scalar parameter; NumPy scalars become one by their item().
Ref to_scalar(const Place& place, PyObject* argument, const char* expected) {
  if (PyLong_Check(argument) || PyFloat_Check(argument)) return Ref::borrow(argument);
  if (is_numpy_scalar(place.state, argument)) {
    Ref item = checked(PyObject_CallMethodObjArgs(argument, place.state.name_item, nullptr));
    if (PyLong_Check(item.get()) || PyFloat_Check(item.get())) return item;
    // item() of a numpy.longdouble gives itself; of the others here (complex, dates, text) none is
    // a number for us.
    const Ref dtype = checked(PyObject_GetAttr(argument, place.state.name_dtype));
    const Ref kind = checked(PyObject_GetAttrString(dtype.get(), "kind"));
    if (PyUnicode_Check(kind.get()) && PyUnicode_CompareWithASCIIString(kind.get(), "f") == 0) {
      return checked(PyNumber_Float(argument));
    }
    place.refuse_type(argument, expected);
  }
  if (is_array(place.state, argument)) {
    place.refuse(std::format("must be {}, not an array ({}); take the element with .item()",
                             expected, type_name(argument)));
  }
  if (PyIndex_Check(argument)) return checked(PyNumber_Index(argument));
  place.refuse_type(argument, expected);
}

[[noreturn]] void refuse_range(const Place& place, PyObject* value, const std::string& range) {
  place.refuse(
      std::format("is out of range: {} does not fit; expected {}", short_repr(value), range));
}

void store_signed(const Place& place, PyObject* value, void* slot) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0 && number == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
  const int unused_bits = 64 - static_cast<int>(place.parameter().size) * 8;
  const std::int64_t highest = std::numeric_limits<std::int64_t>::max() >> unused_bits;
  const std::int64_t lowest = -highest - 1;
  if (overflow != 0 || number < lowest || number > highest) {
    refuse_range(place, value, std::format("{} .. {}", lowest, highest));
  }
  switch (place.parameter().size) {
    case 1:
      return store(slot, static_cast<std::int8_t>(number));
    case 2:
      return store(slot, static_cast<std::int16_t>(number));
    case 4:
      return store(slot, static_cast<std::int32_t>(number));
    default:
      return store(slot, static_cast<std::int64_t>(number));
  }
}

void store_unsigned(const Place& place, PyObject* value, void* slot) {
  const int unused_bits = 64 - static_cast<int>(place.parameter().size) * 8;
  const std::uint64_t highest = std::numeric_limits<std::uint64_t>::max() >> unused_bits;
  const unsigned long long number = PyLong_AsUnsignedLongLong(value);
  bool fits = number <= highest;
  if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) throw PythonError{};
    PyErr_Clear();
    fits = false;
  }
  if (!fits) refuse_range(place, value, std::format("0 .. {}", highest));
  switch (place.parameter().size) {
    case 1:
      return store(slot, static_cast<std::uint8_t>(number));
    case 2:
      return store(slot, static_cast<std::uint16_t>(number));
    case 4:
      return store(slot, static_cast<std::uint32_t>(number));
    default:
      return store(slot, static_cast<std::uint64_t>(number));
  }
}

void store_integer(const Place& place, PyObject* argument, void* slot) {
  const Ref value = to_scalar(place, argument, "an int");
  if (!PyLong_Check(value.get())) {
    place.refuse(
        std::format("must be an int, not a float ({}); round it first, for example with int()",
                    short_repr(argument)));
  }
  if (place.parameter().kind == ParameterKind::kSigned)
    return store_signed(place, value.get(), slot);
  store_unsigned(place, value.get(), slot);
}

void store_bool(const Place& place, PyObject* argument, void* slot) {
  const Ref value = to_scalar(place, argument, "a bool");
  if (!PyLong_Check(value.get())) place.refuse_type(argument, "a bool");
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.get(), &overflow);
  if (overflow != 0 || number < 0 || number > 1)
    refuse_range(place, value.get(), "True, False, 0 or 1");
  store(slot, number == 1);
}

void store_float(const Place& place, PyObject* argument, void* slot) {
  const Ref value = to_scalar(place, argument, "a float");
  const double number =
      PyFloat_Check(value.get()) ? PyFloat_AsDouble(value.get()) : PyLong_AsDouble(value.get());
  bool fits = true;
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) throw PythonError{};
    PyErr_Clear();
    fits = false;
  }
  if (place.parameter().size == sizeof(double)) {
    if (!fits) refuse_range(place, value.get(), "at most 1.8e308 in magnitude");
    return store(slot, number);
  }
  const auto narrow = static_cast<float>(number);
  if (!fits || (std::isinf(narrow) && !std::isinf(number))) {
    refuse_range(place, value.get(), "at most 3.4e38 in magnitude");
  }
  store(slot, narrow);
}

// Whether a pointer to this element type reads the array's items as what they are. Pointers to
// void, to one byte and to structs are taken for raw memory. 'V' is what NumPy says of types it
// does not know (bfloat16).
bool can_read(const Parameter& parameter, const ArrayAddress& array) {
  const bool same_size = array.item_size == parameter.element_size;
  switch (parameter.element_kind) {
    case ParameterKind::kUnknown:
    case ParameterKind::kStruct:
      return true;
    case ParameterKind::kFloat:
      return same_size && (array.type_kind == 'f' || array.type_kind == 'V');
    case ParameterKind::kSigned:
    case ParameterKind::kUnsigned:
      return parameter.element_size == 1 ||
             (same_size && array.type_kind != 'f' && array.type_kind != 'c');
    case ParameterKind::kBool:
    case ParameterKind::kPointer:
    case ParameterKind::kSized:
      break;
  }
  return same_size && array.type_kind != 'f' && array.type_kind != 'c';
}

// Whether the kernel may read numbers of the element's type at the address.
bool is_aligned(const Parameter& parameter, const ArrayAddress& array) {
  switch (parameter.element_kind) {
    case ParameterKind::kUnknown:
    case ParameterKind::kStruct:
      return true;
    default:
      return reinterpret_cast<std::uintptr_t>(array.address) % parameter.element_size == 0;
  }
}

// What keeps the array's memory until the kernel is done; nothing when the argument itself does.
Keep store_pointer(const Place& place, PyObject* argument, void* slot) {
  if (argument == Py_None) {
    store(slot, static_cast<void*>(nullptr));
    return {};
  }
  const bool on_gpu = place.signature.memory == Memory::kCuda;
  if (on_gpu && PyLong_CheckExact(argument)) {
    store_unsigned(place, argument, slot);
    return {};
  }
  ArrayAddress found =
      on_gpu ? find_cuda_array(place.state, argument) : find_array(place.state, argument);
  if (!found.is_array) {
    place.refuse_type(argument, on_gpu
                                    ? "a CUDA array of torch, CuPy or another library with DLPack "
                                      "or __cuda_array_interface__, an int (address) or None"
                                    : "a NumPy array, a torch CPU tensor, an object with DLPack or "
                                      "the buffer protocol, or None");
  }
  if (!found.problem.empty()) place.refuse(found.problem);
  if (!can_read(place.parameter(), found)) {
    place.refuse(std::format(
        "is an array of {}, which the kernel would misread; convert it (astype, view or to)",
        describe(found)));
  }
  if (!found.is_writeable && !place.parameter().element_is_const) {
    place.refuse(
        "is a read-only array, and the kernel may write through this pointer; pass a copy, or "
        "declare the "
        "parameter as a pointer to const");
  }
  if (!is_aligned(place.parameter(), found)) {
    place.refuse(
        std::format("is not aligned to {} bytes; pass a copy", place.parameter().element_size));
  }
  store(slot, found.address);
  return std::move(found.keep);
}

// The bytes of a struct: what bytes, a ctypes structure or another buffer of exactly its size
// holds.
ArrayAddress get_struct(const Place& place, PyObject* argument, std::size_t& size) {
  ArrayAddress found = from_buffer(argument, &size);
  const std::size_t expected = place.parameter().size;
  if (!found.is_array) {
    const char* others = place.parameter().kind != ParameterKind::kSized ? ""
                         : expected == sizeof(void*) ? "an int, a float, a CUDA array, None or "
                                                     : "an int, a float or ";
    place.refuse_type(argument, std::format("{}bytes of length {}", others, expected).c_str());
  }
  if (!found.problem.empty()) place.refuse(found.problem);
  if (size != expected) {
    place.refuse(std::format("must be bytes of length {}, not of length {}", expected, size));
  }
  return found;
}

// --- Parameters of which only the size is known ---

void store_bytes(void* slot, std::uint64_t number, std::size_t size) {
  std::memcpy(slot, &number, size);  // Little-endian, as every GPU's host.
}

// An int that fits the size, signed or unsigned.
void store_sized_integer(const Place& place, PyObject* value, void* slot) {
  const std::size_t size = place.parameter().size;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) {
    if (number == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
    const unsigned bits = static_cast<unsigned>(size) * 8;
    if (size == 8 || (number >= -(1LL << (bits - 1)) && number < (1LL << bits)))
      return store_bytes(slot, static_cast<std::uint64_t>(number), size);
  } else if (size == 8 && overflow > 0) {
    const unsigned long long high = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred() == nullptr) return store_bytes(slot, high, size);
    PyErr_Clear();
  }
  refuse_range(place, value, std::format("-2**{} .. 2**{} - 1", size * 8 - 1, size * 8));
}

void store_sized_float(const Place& place, PyObject* argument, void* slot) {
  if (place.parameter().size < sizeof(float)) {
    place.refuse(
        std::format("must not be a float ({}): which kind of float the kernel reads is not known; "
                    "pass a NumPy scalar of that size, or its bytes",
                    short_repr(argument)));
  }
  store_float(place, argument, slot);
}

// A NumPy scalar of exactly the size goes as it is.
bool store_numpy_bytes(const Place& place, PyObject* argument, void* slot) {
  std::size_t size = 0;
  const ArrayAddress found = from_buffer(argument, &size);
  if (!found.is_array || !found.problem.empty() || size != place.parameter().size) return false;
  std::memcpy(slot, found.address, size);
  return true;
}

void store_sized_scalar(const Place& place, const Ref& value, void* slot) {
  if (PyLong_Check(value.get())) return store_sized_integer(place, value.get(), slot);
  store_sized_float(place, value.get(), slot);
}

// Of the size of a pointer: an array, or None. False when it is neither.
bool store_sized_array(const Place& place, PyObject* argument, void* slot, Keep& keep) {
  if (place.parameter().size != sizeof(void*)) return false;
  ArrayAddress found =
      argument == Py_None ? ArrayAddress{.is_array = true} : find_cuda_array(place.state, argument);
  if (!found.is_array) return false;
  if (!found.problem.empty()) place.refuse(found.problem);
  store(slot, found.address);
  keep = std::move(found.keep);
  return true;
}

Keep store_sized(const Place& place, PyObject* argument, void* slot) {
  Keep keep;
  if (PyLong_Check(argument)) {
    store_sized_integer(place, argument, slot);
  } else if (PyFloat_CheckExact(argument)) {
    store_sized_float(place, argument, slot);
  } else if (store_sized_array(place, argument, slot, keep)) {
    return keep;
  } else if (is_numpy_scalar(place.state, argument)) {
    if (!store_numpy_bytes(place, argument, slot))
      store_sized_scalar(place, to_scalar(place, argument, "a number"), slot);
  } else if (is_array(place.state, argument) || PyIndex_Check(argument)) {
    store_sized_scalar(place, to_scalar(place, argument, "a number"), slot);
  } else {
    std::size_t size = 0;
    const ArrayAddress found = get_struct(place, argument, size);
    std::memcpy(slot, found.address, size);
  }
  return keep;
}

bool is_plain_number(const Parameter& parameter) {
  switch (parameter.kind) {
    case ParameterKind::kBool:
      return parameter.size == sizeof(bool);
    case ParameterKind::kSigned:
    case ParameterKind::kUnsigned:
      return parameter.size == 1 || parameter.size == 2 || parameter.size == 4 ||
             parameter.size == 8;
    case ParameterKind::kFloat:
      return parameter.size == sizeof(float) || parameter.size == sizeof(double);
    case ParameterKind::kPointer:
    case ParameterKind::kSized:
    case ParameterKind::kStruct:
    case ParameterKind::kUnknown:
      break;
  }
  return false;
}

void store_number(const Place& place, PyObject* argument, void* slot) {
  switch (place.parameter().kind) {
    case ParameterKind::kBool:
      return store_bool(place, argument, slot);
    case ParameterKind::kFloat:
      return store_float(place, argument, slot);
    default:
      return store_integer(place, argument, slot);
  }
}

}  // namespace

const char* kind_name(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kPointer:
      return "pointer";
    case ParameterKind::kBool:
      return "bool";
    case ParameterKind::kSigned:
      return "signed";
    case ParameterKind::kUnsigned:
      return "unsigned";
    case ParameterKind::kFloat:
      return "float";
    case ParameterKind::kStruct:
      return "struct";
    case ParameterKind::kSized:
      return "sized";
    case ParameterKind::kUnknown:
      break;
  }
  return "unknown";
}

void ArgumentPack::FreeBlock::operator()(void* block) const noexcept {
  std::free(block);
}

void* ArgumentPack::add_block(const void* data, std::size_t size, std::size_t alignment) {
  // aligned_alloc wants a power of two that a pointer fits in, and a multiple of it.
  const std::size_t step =
      alignment < alignof(std::max_align_t) ? alignof(std::max_align_t) : alignment;
  std::unique_ptr<void, FreeBlock> block(std::aligned_alloc(step, (size + step - 1) / step * step));
  if (block == nullptr) throw std::bad_alloc();
  std::memcpy(block.get(), data, size);
  return blocks_.emplace_back(std::move(block)).get();
}

ArgumentPack::ArgumentPack(State& state, const Signature& signature, PyObject* const* arguments,
                           Py_ssize_t count)
    : size_(signature.parameters.size()), pointers_(inline_pointers_.data()) {
  if (count != static_cast<Py_ssize_t>(size_)) {
    throw ArgumentError{
        std::format("cannot launch kernel `{}`: it has {} parameters, but {} arguments were given",
                    signature.kernel, size_, count),
        signature.kernel, std::nullopt};
  }
  Slot* slots = inline_slots_.data();
  if (size_ > kInline) {
    more_slots_.resize(size_);
    more_pointers_.resize(size_);
    slots = more_slots_.data();
    pointers_ = more_pointers_.data();
  }
  for (std::size_t i = 0; i < size_; ++i) {
    const Parameter& parameter = signature.parameters[i];
    const Place place{state, signature, static_cast<Py_ssize_t>(i)};
    pointers_[i] = slots[i].bytes;
    if (parameter.kind == ParameterKind::kPointer) {
      if (Keep keep = store_pointer(place, arguments[i], pointers_[i])) {
        keeps_.push_back(std::move(keep));
      }
    } else if (parameter.kind == ParameterKind::kSized) {
      if (Keep keep = store_sized(place, arguments[i], pointers_[i])) {
        keeps_.push_back(std::move(keep));
      }
    } else if (is_plain_number(parameter)) {
      store_number(place, arguments[i], pointers_[i]);
    } else if (PyBytes_CheckExact(arguments[i]) &&
               PyBytes_Size(arguments[i]) == static_cast<Py_ssize_t>(parameter.size)) {
      pointers_[i] = add_block(PyBytes_AsString(arguments[i]), parameter.size, parameter.alignment);
    } else {
      std::size_t size = 0;
      const ArrayAddress found = get_struct(place, arguments[i], size);
      pointers_[i] = add_block(found.address, size, parameter.alignment);
    }
  }
}

}  // namespace deep_jit::python
