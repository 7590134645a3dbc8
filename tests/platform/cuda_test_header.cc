// What Postern says of libcuda's functions, beside the toolkit's header where that is installed.
#include <gtest/gtest.h>

#include <type_traits>

#include "platform/cuda/functions.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace postern {
namespace {

TEST(CudaHeader, FunctionsAreDeclaredAsTheToolkitDoes) {
#ifndef CUDA_VERSION
  GTEST_SKIP() << "no CUDA toolkit is installed here (cuda.h)";
#else
  using Ours = internal::platforms::CudaFunctions;
  const auto agree = []<class A, class B>(std::type_identity<A>, std::type_identity<B>) {
    if (std::is_pointer_v<A> || std::is_pointer_v<B>)
      return std::is_pointer_v<A> && std::is_pointer_v<B>;
    const auto is_whole = [](auto type) {
      using T = typename decltype(type)::type;
      return std::is_integral_v<T> || std::is_enum_v<T>;
    };
    return is_whole(std::type_identity<A>()) && is_whole(std::type_identity<B>()) &&
           sizeof(A) == sizeof(B);
  };
  const auto same = [&]<class R, class... P, class S, class... Q>(R (*)(P...), S (*)(Q...)) {
    if constexpr (sizeof...(P) != sizeof...(Q))
      return false;
    else
      return agree(std::type_identity<R>(), std::type_identity<S>()) &&
             (agree(std::type_identity<P>(), std::type_identity<Q>()) && ...);
  };
  const Ours ours{};
  EXPECT_TRUE(same(ours.init, decltype(&cuInit){}));
  EXPECT_TRUE(same(ours.allocate, decltype(&cuMemHostAlloc){}));
  EXPECT_TRUE(same(ours.free, decltype(&cuMemFreeHost){}));
  EXPECT_TRUE(same(ours.attribute_of, decltype(&cuPointerGetAttribute){}));
  EXPECT_TRUE(same(ours.copy_to_host, decltype(&cuMemcpyDtoHAsync){}));
  EXPECT_TRUE(same(ours.copy_to_device, decltype(&cuMemcpyHtoDAsync){}));
  EXPECT_TRUE(same(ours.fill, decltype(&cuMemsetD8Async){}));
  EXPECT_TRUE(same(ours.synchronize, decltype(&cuStreamSynchronize){}));
  EXPECT_TRUE(same(ours.context_of, decltype(&cuStreamGetCtx){}));
  EXPECT_TRUE(same(ours.device, decltype(&cuDeviceGet){}));
  EXPECT_TRUE(same(ours.primary_context, decltype(&cuDevicePrimaryCtxRetain){}));
  EXPECT_TRUE(same(ours.create_event, decltype(&cuEventCreate){}));
  EXPECT_TRUE(same(ours.record, decltype(&cuEventRecord){}));
  EXPECT_TRUE(same(ours.query, decltype(&cuEventQuery){}));
  EXPECT_TRUE(same(ours.wait, decltype(&cuEventSynchronize){}));
  EXPECT_TRUE(same(ours.enter, decltype(&cuCtxPushCurrent){}));
  EXPECT_TRUE(same(ours.leave, decltype(&cuCtxPopCurrent){}));
  EXPECT_TRUE(same(ours.describe, decltype(&cuGetErrorString){}));
  EXPECT_FALSE(same(ours.wait, decltype(&cuEventRecord){})) << "what the comparison is worth";
  EXPECT_FALSE(same(ours.fill, decltype(&cuMemcpyHtoDAsync){}));
  EXPECT_EQ(Ours::pinned_for_all, unsigned{CU_MEMHOSTALLOC_PORTABLE});
  EXPECT_EQ(Ours::no_timing_and_sleeps, unsigned{CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC});
  EXPECT_EQ(Ours::host_memory, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(Ours::memory_type, int{CU_POINTER_ATTRIBUTE_MEMORY_TYPE});
  EXPECT_EQ(Ours::not_ready, int{CUDA_ERROR_NOT_READY});
#endif
}

}  // namespace
}  // namespace postern
