// SPDX-License-Identifier: MIT
//
// Streams and CUDA graphs on a real GPU.
#include <cuda.h>

#include <string>
#include <vector>

#include "tests/cuda/gpu/gpu_test.hpp"

namespace deep_jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamBeginCapture)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamEndCapture)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGraphGetNodes)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGraphInstantiate)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGraphLaunch)

// A stream that the device can wait for; with the default stream's order or without.
class GraphTest : public GpuTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    DJ_CUDA_DRIVER_CHECK(lazy_cuStreamCreate(&stream, GetParam()));
  }
  void TearDown() override { lazy_cuStreamDestroy(stream); }

  void begin() {
    DJ_CUDA_DRIVER_CHECK(lazy_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  }

  // Ends the capture, which must have one node, and replays it twice.
  void replay(const Buffer<float>& out, float wanted) {
    CUgraph graph = nullptr;
    DJ_CUDA_DRIVER_CHECK(lazy_cuStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    DJ_CUDA_DRIVER_CHECK(lazy_cuGraphGetNodes(graph, static_cast<CUgraphNode*>(nullptr), &nodes));
    EXPECT_EQ(nodes, 1u);
    CUgraphExec ready = nullptr;
    DJ_CUDA_DRIVER_CHECK(lazy_cuGraphInstantiate(&ready, graph, 0ull));
    for (int i = 0; i < 2; ++i) {
      DJ_CUDA_DRIVER_CHECK(lazy_cuMemsetD8(reinterpret_cast<CUdeviceptr>(out.get()),
                                           static_cast<unsigned char>(0), std::size_t{1024}));
      DJ_CUDA_DRIVER_CHECK(lazy_cuGraphLaunch(ready, stream));
      DJ_CUDA_DRIVER_CHECK(lazy_cuStreamSynchronize(stream));
      EXPECT_EQ(out.read(), std::vector<float>(256, wanted));
    }
  }

  CUstream stream = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Streams, GraphTest,
                         ::testing::Values(CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING),
                         [](const auto& info) {
                           return info.param == CU_STREAM_DEFAULT ? "Blocking" : "NonBlocking";
                         });

TEST_P(GraphTest, CapturesOneNodeAndReplays) {
  const auto kernel = jit->compile("scale", kScale);
  const Buffer<float> in(std::vector<float>(256, 3.0f));
  const Buffer<float> out(256);
  begin();
  jit->launch(kernel, {.stream = stream, .grid_dim = Dim3(1), .block_dim = Dim3(256)}, out.get(),
              static_cast<const float*>(in.get()), 2.0f, 256);
  replay(out, 6.0f);
}

TEST_P(GraphTest, InheritsTheStreamOfTheRuntime) {
  Runtime<CUDA> runtime(config());
  runtime.default_launch_options.stream = stream;
  const auto kernel = runtime.compile("scale", kScale);
  const Buffer<float> in(std::vector<float>(256, 4.0f));
  const Buffer<float> out(256);
  begin();
  runtime.launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(256)}, out.get(),
                 static_cast<const float*>(in.get()), 2.0f, 256);
  replay(out, 8.0f);
}

TEST_P(GraphTest, AColdCompileIsRefusedAndTheCaptureGoesOn) {
  const auto kernel = jit->compile("scale", kScale);
  const std::string cold =
      "__global__ void cold(int* out) { *out = " + std::to_string(GetParam()) + "; }";
  const Buffer<float> in(std::vector<float>(256, 5.0f));
  const Buffer<float> out(256);
  begin();
  if (GetParam() == CU_STREAM_DEFAULT) {  // Another capture cannot be seen from outside of it.
    EXPECT_THAT([&] { jit->compile("cold", cold); },
                ThrowsMessage<exception::Exception>(HasSubstr("kernel `cold`")));
  }
  jit->launch(kernel, {.stream = stream, .grid_dim = Dim3(1), .block_dim = Dim3(256)}, out.get(),
              static_cast<const float*>(in.get()), 2.0f, 256);
  replay(out, 10.0f);
  EXPECT_NE(jit->compile("cold", cold), nullptr);
}

}  // namespace
}  // namespace deep_jit::testing
