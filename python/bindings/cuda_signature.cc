// SPDX-License-Identifier: MIT
#include "python/bindings/cuda_signature.h"

#include <cstddef>
#include <vector>

namespace deep_jit::python {
namespace {

struct Scalar {
  std::string_view name;
  ParameterKind kind;
  std::size_t size;
};

// As the demangler writes them. `char` is signed on the machines that have these GPUs' compilers
// in common with us: nvcc follows the host, which is x86-64.
constexpr Scalar kScalars[] = {
    {"bool", ParameterKind::kBool, 1},          {"char", ParameterKind::kSigned, 1},
    {"signed char", ParameterKind::kSigned, 1}, {"unsigned char", ParameterKind::kUnsigned, 1},
    {"short", ParameterKind::kSigned, 2},       {"unsigned short", ParameterKind::kUnsigned, 2},
    {"int", ParameterKind::kSigned, 4},         {"unsigned int", ParameterKind::kUnsigned, 4},
    {"long", ParameterKind::kSigned, 8},        {"unsigned long", ParameterKind::kUnsigned, 8},
    {"long long", ParameterKind::kSigned, 8},   {"unsigned long long", ParameterKind::kUnsigned, 8},
    {"float", ParameterKind::kFloat, 4},        {"double", ParameterKind::kFloat, 8},
};

const Scalar* find_scalar(std::string_view type) {
  for (const Scalar& scalar : kScalars) {
    if (scalar.name == type) return &scalar;
  }
  return nullptr;
}

bool remove_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// The types between the outermost parentheses at the end; none when there are no such.
std::vector<std::string_view> split_types(std::string_view demangled) {
  if (!demangled.ends_with(')')) return {};
  std::vector<std::string_view> types;
  std::size_t end = demangled.size() - 1;
  int depth = 0;
  for (std::size_t i = demangled.size(); i-- > 0;) {
    const char c = demangled[i];
    if (c == ')' || c == '>') ++depth;
    if (c == '(' || c == '<') --depth;
    const bool is_first = depth == 0;
    if (!is_first && !(depth == 1 && c == ',')) continue;
    std::string_view type = demangled.substr(i + 1, end - i - 1);
    while (type.starts_with(' ')) type.remove_prefix(1);
    types.insert(types.begin(), type);
    end = i;
    if (is_first) return types;
  }
  return {};
}

Parameter make_parameter(std::size_t size, std::string_view type) {
  const bool is_register = size == 1 || size == 2 || size == 4 || size == 8;
  Parameter parameter{.kind = is_register ? ParameterKind::kSized : ParameterKind::kStruct,
                      .size = size,
                      .alignment = 1};
  if (const Scalar* scalar = find_scalar(type); scalar != nullptr && scalar->size == size) {
    parameter.kind = scalar->kind;
  } else if (size == sizeof(void*) && remove_suffix(type, "*")) {
    parameter.kind = ParameterKind::kPointer;
    // What is not known may be written to, and nothing can be said of it.
    parameter.element_is_const = remove_suffix(type, " const");
    if (const Scalar* element = find_scalar(type)) {
      parameter.element_kind = element->kind;
      parameter.element_size = element->size;
    } else if (type.ends_with('*')) {
      parameter.element_kind = ParameterKind::kPointer;
      parameter.element_size = sizeof(void*);
    }
  }
  return parameter;
}

}  // namespace

Signature make_cuda_signature(const std::string& name, std::string_view demangled,
                              std::span<const cuda::KernelParameter> parameters) {
  Signature signature{.kernel = name, .parameters = {}, .memory = Memory::kCuda};
  const std::vector<std::string_view> types = split_types(demangled);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool is_known = types.size() == parameters.size();
    signature.parameters.push_back(
        make_parameter(parameters[i].size, is_known ? types[i] : std::string_view()));
  }
  return signature;
}

}  // namespace deep_jit::python
