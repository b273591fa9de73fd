// SPDX-License-Identifier: MIT
//
// The stand-in for libcuda.so.1 (tests/cuda/fake_driver.hpp) for Python tests: what they set and
// read through ctypes, in plain C.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/fake_driver.hpp"

namespace {

using deep_jit::testing::FakeDriver;
using deep_jit::testing::FakeLaunch;

std::string to_json(const FakeLaunch& launch) {
  const auto& config = launch.config;
  const auto list = [](const auto&... values) {
    std::string text;
    ((text += (text.empty() ? "[" : ", ") + std::to_string(values)), ...);
    return text + "]";
  };
  std::string text =
      "{\"grid\": " + list(config.gridDimX, config.gridDimY, config.gridDimZ) +
      ", \"block\": " + list(config.blockDimX, config.blockDimY, config.blockDimZ) +
      ", \"smem\": " + std::to_string(config.sharedMemBytes) +
      ", \"stream\": " + std::to_string(reinterpret_cast<std::uintptr_t>(config.hStream)) +
      ", \"context\": " + std::to_string(reinterpret_cast<std::uintptr_t>(launch.context)) +
      ", \"attributes\": {";
  const char* separator = "";
  for (const auto& attribute : launch.attributes) {
    text += separator;
    separator = ", ";
    const auto& value = attribute.value;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      text += "\"cluster\": " + list(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      text += "\"cooperative\": " + std::to_string(value.cooperative);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      text += "\"pdl\": " + std::to_string(value.programmaticStreamSerializationAllowed);
    }
  }
  text += "}, \"arguments\": [";
  separator = "";
  for (const std::string& argument : launch.arguments) {
    text += separator + std::string("\"");
    separator = ", ";
    for (const char c : argument) {
      constexpr char kDigits[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      text += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    text += "\"";
  }
  return text + "]}";
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) FakeDriver* fake_driver();

// The launches so far as JSON; they are forgotten.
__attribute__((visibility("default"))) const char* fake_take_launches() {
  static std::string text;
  text = "[";
  for (const FakeLaunch& launch : fake_driver()->launches) {
    text += (text.size() == 1 ? "" : ", ") + to_json(launch);
  }
  text += "]";
  fake_driver()->launches.clear();
  return text.c_str();
}

__attribute__((visibility("default"))) void fake_reset() {
  fake_driver()->reset();
  for (int device = 0; device < 2; ++device) {
    fake_driver()->device_attributes[{device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR}] = 9;
  }
  fake_driver()->function_attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10;
}

// The one kernel of every library.
__attribute__((visibility("default"))) void fake_set_kernel(const char* symbol,
                                                            const std::size_t* sizes,
                                                            std::size_t count) {
  fake_driver()->kernels = {{symbol, std::vector<std::size_t>(sizes, sizes + count)}};
}

__attribute__((visibility("default"))) void fake_set_function_attribute(int attribute, int value) {
  fake_driver()->function_attributes[static_cast<CUfunction_attribute>(attribute)] = value;
}

__attribute__((visibility("default"))) void fake_fail(const char* name, int result) {
  fake_driver()->failures[name] = static_cast<CUresult>(result);
}

__attribute__((visibility("default"))) std::size_t fake_count(const char* name) {
  return fake_driver()->count(name);
}

}  // extern "C"
