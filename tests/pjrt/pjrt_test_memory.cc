// Memory seen through the PJRT boundary: buffers, their layouts, aliases and dtypes.
#include "pjrt/dtype_codes.h"
#include "pjrt_test.h"

namespace postern::internal::pjrt {
namespace {

TEST(PjrtBuffer, Describes) {
  const Buffer buffer = to_device({1, 2, 3, 4, 5, 6}, {2, 3}, client().devices()[1]);
  EXPECT_EQ(Dims(buffer.dims().begin(), buffer.dims().end()), (Dims{2, 3}));
  EXPECT_EQ(buffer.device(), client().devices()[1]);
  EXPECT_TRUE(buffer.is_on_cpu());
  buffer.ready().await();
  EXPECT_EQ(static_cast<const float*>(buffer.data())[5], 6);
  const Buffer copy = buffer.copy_to(client().devices()[2]);
  EXPECT_EQ(copy.device(), client().devices()[2]);
  EXPECT_EQ(to_host(copy), to_host(buffer));
}

TEST(PjrtBuffer, EmptyAndScalar) {
  const Buffer empty =
      client().buffer_from_host(nullptr, DType::f32, Dims{0, 3}, client().devices()[0]);
  EXPECT_EQ(empty.host_bytes(), 0u);
  EXPECT_NO_THROW(empty.to_host(nullptr, 0).await());
  const Buffer scalar = to_device({42}, {});
  EXPECT_EQ(to_host(scalar), std::vector<float>{42});
  float place = 0;
  EXPECT_THROW(scalar.to_host(nullptr, 4), Error);
  EXPECT_THROW(scalar.to_host(&place, 2).await(), Error);  // too little room
}

TEST(PjrtBuffer, RowMajorOnTheHostWhateverTheLayout) {
  const Executable flip = client().compile(R"(module @flip {
    func.func public @main(%a: tensor<2x3xf32>) -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
      %0 = stablehlo.add %a, %a : tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }
  })");
  const Buffer input = to_device({1, 2, 3, 4, 5, 6}, {2, 3});
  const Buffer output = run(flip, {&input});
  output.ready().await();
  EXPECT_EQ(static_cast<const float*>(output.data())[1], 8);  // column-major on the device
  EXPECT_EQ(to_host(output), (std::vector<float>{2, 4, 6, 8, 10, 12}));
}

TEST(PjrtBuffer, SubByteTypesComeOneByteAnElement) {
  const signed char values[] = {1, -2, 3, -4, 5};
  const Buffer buffer =
      client().buffer_from_host(values, DType::s4, Dims{5}, client().devices()[0]);
  EXPECT_EQ(buffer.host_bytes(), 5u);
  signed char back[5];
  buffer.to_host(back, 5).await();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(back[i] & 15, values[i] & 15);
}

TEST(PjrtBuffer, AliasedMemoryIsReleasedOnce) {
  alignas(64) static float memory[16] = {1, 2, 3, 4};
  std::atomic<int> released{0};
  const auto kept = [&] {
    return std::shared_ptr<const void>(memory, [&](const void*) { ++released; });
  };
  const Device& device = client().devices()[3];
  {
    const Buffer buffer = client().buffer_from_host(memory, DType::f32, Dims{4}, device, kept());
    buffer.ready().await();
    EXPECT_EQ(buffer.data(), memory);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  // Not aligned to 64 bytes: copied, and released early.
  const Buffer copied = client().buffer_from_host(memory + 1, DType::f32, Dims{3}, device, kept());
  copied.ready().await();
  EXPECT_NE(copied.data(), memory + 1);
  EXPECT_EQ(to_host(copied), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(released, 2);
}

TEST(PjrtBuffer, ViewsLetAnotherDeviceRead) {
  const Executable add = client().compile(add_text, {.portable = true});
  const Buffer owner = to_device(one_to_four, {4});
  owner.ready().await();
  const Device& device = client().devices()[3];
  int deleted = 0;
  {
    const Buffer view = client().view_of_device(
        owner.data(), DType::f32, owner.dims(), device,
        std::shared_ptr<const void>(owner.data(), [&](const void*) { ++deleted; }));
    EXPECT_EQ(view.data(), owner.data());
    EXPECT_EQ(to_host(run(add, {&view, &view}, {.device = &device})),
              (std::vector<float>{2, 4, 6, 8}));
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_NO_THROW(client().view_of_device(owner.data(), DType::f32, owner.dims(),
                                          device));  // nothing to let go of
  EXPECT_THROW(
      client().view_of_device(static_cast<float*>(owner.data()) + 1, DType::f32, Dims{1}, device),
      Error);
}

TEST(PjrtDtype, BufferTypesBothWays) {
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(from_buffer_type(to_buffer_type(dtype)), dtype);
  }
  EXPECT_THROW(from_buffer_type(0), Error);
  EXPECT_THROW(from_buffer_type(-1), Error);
  EXPECT_THROW(from_buffer_type(1000), Error);
}

}  // namespace
}  // namespace postern::internal::pjrt
