// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/driver.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/backend/cuda/lazy_symbol.hpp"
#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DriverTest : public testing::CudaTest {};

TEST_F(DriverTest, IsInitialisedOnceAndRetriedAfterAFailure) {
  driver().failures["cuInit"] = CUDA_ERROR_NO_DEVICE;
  DJ_EXPECT_ERROR(exception::Exception, api(), AllOf(HasSubstr("cuInit"), HasSubstr("(100)")));
  driver().failures.clear();
  driver().calls.clear();
  int count = 0;
  EXPECT_EQ(api().cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(&api(), &api());
  EXPECT_EQ(driver().count("cuInit"), 1u);
}

TEST_F(DriverTest, CheckTellsExpressionCodeNameAndText) {
  EXPECT_NO_THROW(DJ_CUDA_DRIVER_CHECK(CUDA_SUCCESS));
  CUdevice device = 0;
  driver().failures["cuDeviceGet"] = CUDA_ERROR_INVALID_VALUE;
  DJ_EXPECT_ERROR(exception::Exception, DJ_CUDA_DRIVER_CHECK(api().cuDeviceGet(&device, 7)),
                  HasSubstr("CUDA driver call failed: api().cuDeviceGet(&device, 7): "
                            "CUDA_ERROR_INVALID_VALUE (1): text of the error"));
}

TEST_F(DriverTest, LazyFunctionsFindVersionedNames) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  EXPECT_EQ(lazy_cuMemGetAddressRange(&base, &size, CUdeviceptr{64}), CUDA_SUCCESS);
  EXPECT_EQ(base, 64u);
  EXPECT_EQ(driver().calls.back(), "cuMemGetAddressRange_v2");
  CUdevice device = 0;
  EXPECT_EQ(lazy_cuDeviceGet(&device, 1), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  DJ_EXPECT_ERROR(exception::Exception, lazy_cuMemUnmap(CUdeviceptr{64}, size),
                  HasSubstr("failed to find symbol 'cuMemUnmap'"));
}

DJ_DECL_LAZY_DL_HANDLE(get_missing_handle, "libdeep_jit_no_such_library.so")
DJ_DECL_LAZY_DL_FUNCTION(get_missing_handle, cuInit)

TEST_F(DriverTest, LazyLibraryThatIsMissing) {
  DJ_EXPECT_ERROR(exception::Exception, lazy_cuInit(0u),
                  HasSubstr("failed to load dynamic library libdeep_jit_no_such_library.so"));
}

}  // namespace
}  // namespace deep_jit::cuda::driver
