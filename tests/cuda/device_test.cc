// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/device.hpp"

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

class DeviceTest : public testing::CudaTest {
 protected:
  void set_arch(int device, int major, int minor) {
    set_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major);
    set_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
  }
};

TEST_F(DeviceTest, Getters) {
  set_device_attribute(0, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132);
  set_device_attribute(0, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20);
  set_device_attribute(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10);
  set_device_attribute(0, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535);
  set_device_attribute(0, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1'980'000);
  const Device device;
  EXPECT_EQ(driver().calls.size(), 0u) << "making one asks nothing";
  EXPECT_EQ(device.get_num_sms(), 132);
  EXPECT_EQ(device.get_num_l2_cache_bytes(), 50 << 20);
  EXPECT_EQ(device.get_num_smem_bytes(), 227 << 10);
  EXPECT_EQ(device.get_clock_rate(), 1'980'000'000);
  EXPECT_THAT(device.get_arch_pair(), Pair(9, 0));
  EXPECT_STREQ(device.get_prop().name, "Fake 0");
  EXPECT_EQ(device.get_prop().totalGlobalMem, std::size_t{3} << 40);
  EXPECT_EQ(device.get_prop().maxGridSize[2], 65535);
  EXPECT_EQ(device.get_prop().uuid.bytes[3], 1);
  EXPECT_EQ(driver().count("cuDevicePrimaryCtxRetain"), 0u) << "no context is made";
  const auto calls = driver().calls.size();
  EXPECT_EQ(&device.get_prop(), &device.get_prop());
  EXPECT_EQ(driver().calls.size(), calls) << "the answers are remembered";
}

TEST_F(DeviceTest, Architectures) {
  struct Case {
    int major, minor;
    const char* family;
    const char* specific;
    const char* number;
  };
  for (const auto& [major, minor, family, specific, number] :
       {Case{8, 0, "80", "80", "80"}, Case{9, 0, "90a", "90a", "90"},
        Case{10, 0, "100f", "100a", "100"}, Case{12, 1, "121f", "121a", "121"}}) {
    set_arch(0, major, minor);
    const Device device;
    EXPECT_EQ(device.get_arch(), family);
    EXPECT_EQ(device.get_arch(false), specific);
    EXPECT_EQ(device.get_arch(true, true), number);
  }
}

TEST_F(DeviceTest, TheCurrentDeviceAtTheFirstQuestion) {
  set_arch(1, 10, 0);
  const Device first;
  set_device(1);
  EXPECT_EQ(first.get_arch(), "100f");
  set_device(0);
  EXPECT_EQ(first.get_arch(), "100f") << "it stays";
  EXPECT_EQ(Device().get_arch(), "90a");
  set_device(-1);
  EXPECT_EQ(Device().get_index(), 0) << "without a context";
}

TEST_F(DeviceTest, NoDevice) {
  set_device(-1);
  driver().num_devices = 0;
  const Device device;
  DJ_EXPECT_ERROR(exception::Exception, device.get_arch(), HasSubstr("there is no CUDA device"));
  driver().num_devices = 1;
  EXPECT_EQ(device.get_arch(), "90a") << "a failure is not remembered";
}

TEST_F(DeviceTest, EnterLendsAContextWhereThereIsNone) {
  set_device(1);
  const Device device;
  device.get_arch();
  const auto& api = driver::api();
  std::thread([&] {
    EXPECT_FALSE(try_current_device(api).has_value());
    {
      const auto scope = device.enter();
      EXPECT_EQ(try_current_device(api), 1);
      const auto calls = driver().count("cuCtxPushCurrent");
      const auto again = device.enter();
      EXPECT_EQ(driver().count("cuCtxPushCurrent"), calls) << "it is current already";
    }
    EXPECT_FALSE(try_current_device(api).has_value());
  }).join();
}

}  // namespace
}  // namespace deep_jit::cuda
