// Operands in host memory, which reach runs through buffers that XLA knows.
#include <thread>

#include "run/runtime.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using Floats = std::vector<float>;

Tensor in_host_memory(const Type& type, float value) {
  const Floats values(static_cast<std::size_t>(type.size()), value);
  return Tensor(type, values.data());
}

run::Staging& staging() { return run::Runtime::get().lane(0).staging; }

TEST(Staging, BuffersAreUsedAgain) {
  const auto f = jit([](Tensor x) { return x + 1.0f; });
  const Type type = postern::type<float>({3, 7});
  f(in_host_memory(type, 1));
  const std::unique_ptr<run::Staged> first = staging().take(type);
  ASSERT_TRUE(first);
  EXPECT_FALSE(staging().take(type));
  EXPECT_FALSE(staging().take(postern::type<float>({7, 3})));
}

TEST(Staging, EachRunHasTheValuesThatItWasGiven) {
  const auto f = jit([](Tensor x, Tensor y) { return x * y + 1.0f; });
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(f(tensor<float>({float(i), 2}), tensor<float>({3, float(i)})).to_vector<float>(),
              (Floats{3.0f * float(i) + 1, 2.0f * float(i) + 1}));
}

// XLA runs the large part on other threads, so the call returns before it has ended.
TEST(Staging, ARunThatGoesOnKeepsItsOperands) {
  const auto f = jit([](Tensor x, Tensor a) {
    const Tensor m = matmul(matmul(a, a), matmul(a, a));
    return x + sum(m) * 0.0f;
  });
  const Tensor a = zeros(postern::type<float>({400, 400}));
  std::vector<Tensor> results;
  for (int i = 0; i < 50; ++i) results.push_back(f(tensor<float>({float(i), -float(i)}), a));
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(results[static_cast<std::size_t>(i)].to_vector<float>(),
              (Floats{float(i), -float(i)}));
}

TEST(Staging, MemoryThatWasLentMayChangeAfterTheCall) {
  alignas(64) float memory[16] = {};
  const auto f = jit([](Tensor x) { return sum(x); });
  std::vector<Tensor> results;
  int released = 0;
  for (int i = 0; i < 20; ++i) {
    memory[5] = static_cast<float>(i);
    results.push_back(f(Tensor::borrow(type<float>({16}), memory, [&] { ++released; })));
  }
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(results[static_cast<std::size_t>(i)].item<float>(), float(i));
  EXPECT_EQ(released, 20);
}

// Of that size it is used in place.
TEST(Staging, LentMemoryIsKeptUntilTheRunHasEnded) {
  const auto f = jit([](Tensor x, Tensor a) {
    const Tensor m = matmul(matmul(a, a), matmul(a, a));
    return x + sum(m) * 0.0f;
  });
  const Type type = postern::type<float>({64, 64});
  const Tensor a = zeros(postern::type<float>({400, 400}));
  std::vector<Tensor> results;
  std::atomic<int> released = 0;
  for (int i = 0; i < 20; ++i) {
    auto memory = std::static_pointer_cast<float>(detail::aligned_bytes(type.byte_size()));
    std::fill_n(memory.get(), type.size(), static_cast<float>(i));
    const Tensor x = Tensor::borrow(type, memory.get(), [memory, &released] {
      std::fill_n(memory.get(), 64 * 64, -1.0f);
      ++released;
    });
    results.push_back(f(x, a));
  }
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(results[static_cast<std::size_t>(i)].to_vector<float>(),
              Floats(64 * 64, static_cast<float>(i)));
  EXPECT_TRUE(test::wait_until([&] { return released == 20; }));  // XLA's threads let go of it
}

TEST(Staging, BuffersOverLentMemoryAreUsedAgain) {
  if (test::skipped_in_stages("the function sees the copy of the compiled program")) return;
  const Type type = postern::type<float>({64, 64});
  const auto memory = std::static_pointer_cast<float>(detail::aligned_bytes(type.byte_size()));
  const void* seen = nullptr;
  const auto f = jit([&](Tensor x) {
    return call(
        postern::type<float>(),
        [&](View<const float> in, View<float> out) {
          seen = in.data();
          out[0] = in.data()[77];
        },
        x);
  });
  for (int i = 0; i < 50; ++i) {
    memory.get()[77] = static_cast<float>(i);
    EXPECT_EQ(f(Tensor::borrow(type, memory.get(), nullptr)).item<float>(), float(i));
    EXPECT_EQ(seen, memory.get());
  }
  EXPECT_TRUE(staging().take(type, memory.get()));
  EXPECT_FALSE(staging().take(type, memory.get()));
}

TEST(Staging, OfManyThreadsAtOnce) {
  const auto f = jit([](Tensor x) { return x * 2.0f; });
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto value = static_cast<float>(1000 * t + i);
        wrong += f(Tensor(value)).item<float>() != 2 * value;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Staging, FunctionsSeeThem) {
  if (test::skipped_in_stages("the function sees the copy of the compiled program")) return;
  const auto f = jit([](Tensor x) {
    return call(
        x.type(), [](View<const float> in, View<float> out) { out[0] = in[0] + 1; }, x);
  });
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(f(tensor<float>({float(i)})).to_vector<float>(), (Floats{float(i) + 1}));
  EXPECT_TRUE(staging().take(type<float>({1})));
}

TEST(Staging, WhatIsGivenTwiceIsSentOnce) {
  const auto f = jit([](Tensor x) { return x + 1.0f; });
  const Type type = postern::type<float>({5, 3});
  const Tensor x = in_host_memory(type, 2);
  f(x);
  const std::unique_ptr<run::Staged> copy = staging().take(type);
  ASSERT_TRUE(copy);
  EXPECT_EQ(f(x).to_vector<float>(), Floats(15, 3.0f));
  EXPECT_FALSE(staging().take(type));
}

}  // namespace
}  // namespace postern
