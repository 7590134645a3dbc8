// Calls and taps of programs on a GPU, with a stand-in for CUDA: what is copied, what is waited
// for, and what happens when CUDA fails.
#include <postern/postern.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "cuda_fake.h"
#include "host/queue.h"
#include "platform/cuda/cuda.h"
#include "platform/gpu/enter.h"
#include "platform/gpu/handler.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;
using test::FakeCuda;

bool has(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::all_of(parts, [&](std::string_view part) { return test::has(text, part); });
}

char some_stream, other_stream;
constexpr int device = 900;  // with a queue of taps for itself

/// A site as a program has it, and the memory of one execution.
class Firing {
 public:
  Firing(std::vector<Type> operands, std::vector<Type> results, Callee fn) {
    spec_.name = "gpu";
    spec_.place = fn.place();
    spec_.function = fn.function();
    spec_.operands = std::move(operands);
    spec_.results = std::move(results);
  }
  Firing(Firing&&) = default;
  ~Firing() {  // the memory goes
    FakeCuda::get().run(&some_stream);
    FakeCuda::get().run(&other_stream);
    host::tap_queue(device).wait({});
  }
  SiteSpec& spec() { return spec_; }
  host::RunState& state() { return *state_; }
  void new_run() { state_ = std::make_unique<host::RunState>(); }
  template <class T>
  T* data(std::size_t i) {
    ready();
    return reinterpret_cast<T*>(memory_[i].data());
  }
  const std::vector<void*>& buffers() {
    ready();
    return buffers_;
  }
  const host::HostSite& site() {
    ready();
    return *site_;
  }

  bool fire(void* stream = &some_stream) {
    ready();
    state_->sites = site_.get();
    state_->site_count = 1;
    return gpu::enter_site(FakeCuda::driver(), *state_, *site_, buffers_.data(), device, stream);
  }
  /// What the run throws.
  std::string failure() {
    try {
      state_->rethrow();
    } catch (const Error& e) {
      return e.what();
    }
  }

 private:
  void ready() {
    if (site_) return;
    if (spec_.is_tap()) spec_.tap.counts = std::make_shared<SiteCounts>();
    site_ =
        std::make_unique<host::HostSite>(std::make_shared<const SiteSpec>(spec_), spec_.function);
    for (std::size_t i = 0; i < site_->buffers; ++i) {
      const std::size_t leaf = i < site_->operands ? i : i - spec_.batch.masked;
      memory_.emplace_back(std::max<std::size_t>(
          spec_.batch.masked && i == site_->operands ? 1 : site_->buffer_bytes[leaf], 64));
      buffers_.push_back(memory_.back().data());
    }
  }

  SiteSpec spec_;
  std::unique_ptr<host::RunState> state_ = std::make_unique<host::RunState>();
  std::unique_ptr<host::HostSite> site_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<void*> buffers_;
};

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu::stood_in()) GTEST_SKIP() << "the whole process calls back through the stand-in";
    fake.reset();
  }
  FakeCuda& fake = FakeCuda::get();
};

Firing sum_of_five() {
  return {std::vector<Type>(5, type<float>({3})),
          {type<float>({3}), type<float>()},
          [](std::span<const AnyView> in, std::span<const AnyMutableView> out) {
            std::memset(out[0].data(), 0, 12);
            for (const AnyView& v : in)
              for (int i = 0; i < 3; ++i)
                reinterpret_cast<float*>(out[0].data())[i] +=
                    reinterpret_cast<const float*>(v.data())[i];
            *reinterpret_cast<float*>(out[1].data()) = static_cast<float>(in.size());
          }};
}

TEST_F(Cuda, OneWaitHoweverManyOperandsAndNoneForTheResults) {
  RecordProperty("covers", "GPU-02");
  Firing f = sum_of_five();
  for (std::size_t i = 0; i < 5; ++i)
    for (int k = 0; k < 3; ++k) f.data<float>(i)[k] = static_cast<float>(k);
  ASSERT_TRUE(f.fire());
  EXPECT_EQ(fake.count("copy_to_host"), 5);
  EXPECT_EQ(fake.count("synchronize"), 1);
  EXPECT_EQ(fake.count("wait"), 0);
  EXPECT_EQ(fake.count("copy_to_device"), 2);
  EXPECT_EQ(f.data<float>(5)[2], 0) << "the stream has not come so far";
  fake.run(&some_stream);
  EXPECT_EQ(f.data<float>(5)[2], 10);
  EXPECT_EQ(*f.data<float>(6), 5);
  EXPECT_EQ(fake.count("enter"), fake.count("leave"));
}

TEST_F(Cuda, OperandsInHostMemoryAreReadWhereTheyAre) {
  RecordProperty("covers", "GPU-08");
  const void* seen[2] = {};
  Firing f({type<float>({3}), type<float>({3})}, {type<float>()},
           [&](View<const float> a, View<const float> b, View<float> out) {
             seen[0] = a.data();
             seen[1] = b.data();
             out[0] = a[2] + b[2];
           });
  float* const there = f.data<float>(0);
  fake.put_on_host(there);
  f.data<float>(1)[2] = 5;
  ASSERT_EQ(FakeCuda::driver().copy_to_device(there + 2, f.data<float>(1) + 2, 4, &some_stream),
            0);  // what the stream has still to do
  ASSERT_TRUE(f.fire());
  EXPECT_EQ(seen[0], there);
  EXPECT_NE(seen[1], f.data<float>(1));
  EXPECT_EQ(fake.count("copy_to_host"), 1);
  EXPECT_EQ(fake.count("synchronize"), 1);
  fake.run(&some_stream);
  EXPECT_EQ(*f.data<float>(2), 10);
}

TEST_F(Cuda, WithoutOperandsNobodyWaits) {
  Firing f({}, {type<float>()}, [](View<float> out) { out[0] = 4; });
  ASSERT_TRUE(f.fire());
  EXPECT_EQ(fake.count("synchronize"), 0);
  fake.run(&some_stream);
  EXPECT_EQ(*f.data<float>(0), 4);
}

TEST_F(Cuda, MemoryThatTheDeviceStillReadsIsNotGivenOutAgain) {
  RecordProperty("covers", "GPU-08");
  Firing f({}, {type<float>({1000})},
           [n = 0](View<float> out) mutable { std::ranges::fill(out, static_cast<float>(++n)); });
  const std::size_t before = fake.pinned();
  ASSERT_TRUE(f.fire());
  ASSERT_TRUE(f.fire()) << "the first result has not been copied yet";
  const std::size_t two = fake.pinned();
  EXPECT_LE(two - before, 2u);
  EXPECT_EQ(fake.queued(&some_stream), 4u);
  fake.run(&some_stream);
  EXPECT_EQ(f.data<float>(0)[999], 2);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(f.fire());
    fake.run(&some_stream);
    EXPECT_EQ(f.data<float>(0)[0], static_cast<float>(i + 3));
  }
  EXPECT_EQ(fake.pinned(), two);
}

TEST_F(Cuda, PinnedMemoryStaysTheSame) {
  RecordProperty("covers", "GPU-08");
  const std::int64_t n = 1 << 18;
  Firing f({type<float>({n})}, {type<float>({n})}, [](View<const float> in, View<float> out) {
    out[0] = in[0] + 1;
    out[n - 1] = in[n - 1] + 1;
  });
  gpu::Staging& staging = gpu::staging_of(FakeCuda::driver(), &some_stream);
  ASSERT_TRUE(f.fire() && f.fire());
  const std::size_t bytes = staging.bytes();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(f.fire());
  EXPECT_EQ(staging.bytes(), bytes);
  const std::int64_t many = 16 << 20;  // 64 MiB
  Firing large({type<float>({many})}, {type<float>({many})},
               [](View<const float> in, View<float> out) { out[many - 1] = in[many - 1] * 2; });
  large.data<float>(0)[many - 1] = 21;
  ASSERT_TRUE(large.fire());
  fake.run(&some_stream);
  EXPECT_EQ(large.data<float>(1)[many - 1], 42);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(large.fire());
    fake.run(&some_stream);
  }
  ASSERT_TRUE(f.fire());
  EXPECT_LE(staging.bytes(), gpu::Staging::retained + (std::size_t{256} << 20))
      << "what is free is kept only up to a limit";
}

Firing tap_of(Callee fn, Type type, TapMode mode) {
  Firing f({std::move(type)}, {}, std::move(fn));
  f.spec().kind = SiteSpec::Kind::tap;
  f.spec().effect = Effect::ordered;
  f.spec().tap.async = mode == TapMode::async;
  return f;
}

TEST_F(Cuda, AnAsynchronousTapDoesNotHoldUpTheStream) {
  RecordProperty("covers", "GPU-03");
  std::mutex guard;
  std::vector<float> seen;
  Firing f = tap_of(
      [&](const TapInfo& info, View<const float> v) {
        EXPECT_EQ(info.device, device);
        const std::scoped_lock lock(guard);
        seen.push_back(v[0]);
      },
      type<float>({4}), TapMode::async);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(f.fire());
    // Work of the device that comes after the tap: the value that it saw is the earlier one.
    FakeCuda::driver().fill(f.buffers()[0], static_cast<unsigned char>(i + 1), 4, &some_stream);
  }
  EXPECT_EQ(fake.count("synchronize"), 0);
  EXPECT_EQ(host::tap_queue(device).wait({}), 0u);
  EXPECT_EQ(fake.count("synchronize"), 0);
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    const auto byte = static_cast<std::uint32_t>(i);
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], std::bit_cast<float>(byte * 0x01010101u)) << i;
  }
}

TEST_F(Cuda, ASynchronousTapCopiesNothingBack) {
  RecordProperty("covers", "GPU-02");
  float seen = 0;
  Firing f = tap_of([&](View<const float> v) { seen = v[3]; }, type<float>({4}), TapMode::sync);
  f.data<float>(0)[3] = 8;
  ASSERT_TRUE(f.fire());
  EXPECT_EQ(seen, 8);
  EXPECT_EQ(fake.count("synchronize"), 1);
  EXPECT_EQ(fake.count("copy_to_device"), 0);
}

TEST_F(Cuda, OnlyTheFiringsThatAreWantedAreCopied) {
  std::atomic<int> seen = 0;
  Firing f = tap_of([&](View<const float>) { ++seen; }, type<float>({4}), TapMode::async);
  f.spec().tap.every = 10;
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(f.fire());
  host::tap_queue(device).wait({});
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(fake.count("copy_to_host"), 3);
}

TEST_F(Cuda, NoMoreThanTheLastFiringsAreKeptWhereTwoComeAtATime) {
  struct Brought : host::Transfer {
    explicit Brought(void* const* there) : data(there) {}
    void* const* wait() override { return data; }
    void* const* data;
  };
  std::atomic<bool> entered = false, go = false;
  Firing f = tap_of(
      [&](View<const float>) {
        entered = true;
        test::wait_until([&] { return go.load(); });
      },
      type<float>({4}), TapMode::async);
  f.spec().tap.keep_last = 1;
  host::TapQueue& queue = host::tap_queue(device);
  EXPECT_TRUE(f.fire());
  EXPECT_TRUE(test::wait_until([&] { return entered.load(); })) << "it is delivered";
  const host::Fetch fetch = [&] {
    EXPECT_TRUE(f.fire()) << "another one comes while this one's leaves do";
    return std::make_unique<Brought>(f.buffers().data());
  };
  EXPECT_TRUE(queue.push(
      {.run = f.state(), .site = f.site(), .data = nullptr, .device = device, .fetch = &fetch}));
  EXPECT_EQ(queue.stats().pending, 2u) << "the one that is delivered, and the last";
  go = true;
  EXPECT_EQ(queue.wait({}), 0u);
}

TEST_F(Cuda, LostFiringsGiveTheirMemoryBack) {
  std::atomic<bool> go = false;
  Firing f = tap_of(
      [&](View<const float>) {
        while (!go) std::this_thread::sleep_for(1ms);
      },
      type<float>({1000}), TapMode::async);
  f.spec().tap.keep_last = 2;
  f.spec().tap.counts = std::make_shared<SiteCounts>();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(f.fire());
  fake.run(&some_stream);
  const std::size_t pinned = fake.pinned();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(f.fire());
    fake.run(&some_stream);
  }
  EXPECT_LE(fake.pinned(), pinned + 2);
  go = true;
}

TEST_F(Cuda, DevicePointersAndTheStreamAreHandedOver) {
  RecordProperty("covers", "GPU-04");
  std::vector<const void*> got;
  Firing f(
      {type<float>({2}), type<float>({0})}, {type<float>({2})},
      [&](const CallInfo& info, View<const float> in, View<const float> none, View<float> out) {
        EXPECT_EQ(info.device, device);
        EXPECT_NE(none.data(), nullptr);
        got = {info.stream, in.data(), out.data()};
      });
  f.spec().memory = Memory::device;
  ASSERT_TRUE(f.fire());
  EXPECT_EQ(got, (std::vector<const void*>{&some_stream, f.buffers()[0], f.buffers()[2]}));
  EXPECT_EQ(fake.count("copy_to_host") + fake.count("copy_to_device") + fake.count("synchronize") +
                fake.count("allocate"),
            0);
}

TEST_F(Cuda, ASlowFunctionOnDeviceMemoryIsLogged) {
  Firing f({type<float>()}, {type<float>()},
           [](View<const float>, View<float>) { std::this_thread::sleep_for(5ms); });
  f.spec().memory = Memory::device;
  f.spec().call.warn_after = 1ms;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(f.fire());
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), {"'gpu'", "took", " ms"}));
}

TEST_F(Cuda, AFailingFunctionCopiesNothingBackAndTheFailingRunGetsZeros) {
  RecordProperty("covers", "GPU-06");
  for (const Memory memory : {Memory::host, Memory::device})
    for (const bool zeros : {false, true}) {
      Firing f({type<float>({2})}, {type<float>({2})},
               [](View<const float>, View<float>) { throw std::runtime_error("no"); });
      f.spec().memory = memory;
      f.data<float>(1)[1] = 7;
      f.state().leaves_zeros = zeros;
      for (int i = 0; i < 2; ++i) {  // the second is skipped
        EXPECT_FALSE(f.fire());
        fake.run(&some_stream);
        EXPECT_EQ(f.data<float>(1)[1], zeros ? 0.0f : 7.0f);
        if (zeros) f.data<float>(1)[1] = 7;
      }
      EXPECT_TRUE(has(f.failure(), {"call 'gpu' at cuda_test.cc:", "no"})) << f.failure();
    }
}

TEST_F(Cuda, WhenCudaFailsTheRunFailsAndTheNextOneIsRight) {
  RecordProperty("covers", "GPU-06");
  Firing f = sum_of_five();
  ASSERT_TRUE(f.fire());
  fake.run(&some_stream);
  gpu::Staging& staging = gpu::staging_of(FakeCuda::driver(), &some_stream);
  struct Case {
    const char *function, *text;
    int after;
  };
  for (const Case& c : {Case{"copy_to_host", "to copy an operand to the host", 0},
                        {"copy_to_host", "to copy an operand to the host", 4},
                        {"synchronize", "to compute the operands", 0},
                        {"copy_to_device", "to copy a result to the device", 0},
                        {"copy_to_device", "to copy a result to the device", 1},
                        {"context_of", "to find the context", 0},
                        {"enter", "to enter", 0}}) {
    f.new_run();
    const std::size_t bytes = staging.bytes();
    fake.fail(c.function, c.after);
    EXPECT_FALSE(f.fire());
    EXPECT_TRUE(
        has(f.failure(), {"call 'gpu' at cuda_test.cc:", "CUDA failed", c.text, "illegal address"}))
        << f.failure();
    fake.run(&some_stream);
    f.new_run();
    *f.data<float>(6) = 0;
    ASSERT_TRUE(f.fire()) << c.function;
    fake.run(&some_stream);
    EXPECT_EQ(*f.data<float>(6), 5);
    EXPECT_EQ(staging.bytes(), bytes) << c.function;
  }
}

TEST_F(Cuda, WithoutPinnedMemoryTheRunFails) {
  RecordProperty("covers", "GPU-06");
  static std::int64_t n = 777 * 1000;
  n *= 2;  // a size that nobody has given back yet
  Firing f({type<float>({n})}, {}, [](View<const float>) {});
  f.spec().effect = Effect::unordered;
  fake.fail("allocate");
  EXPECT_FALSE(f.fire());
  EXPECT_TRUE(has(f.failure(), {"CUDA failed to pin", "bytes of host memory"})) << f.failure();
  f.new_run();
  EXPECT_TRUE(f.fire());
}

TEST_F(Cuda, AnAsynchronousTapThatCannotBeFetchedFailsTheRunOrTheBarrier) {
  RecordProperty("covers", "GPU-06");
  devices();  // a barrier is of the runtime
  int seen = 0;
  Firing f = tap_of([&](View<const float>) { ++seen; }, type<float>({4}), TapMode::async);
  for (const char* function : {"copy_to_host", "record"}) {
    f.new_run();
    fake.fail(function);
    EXPECT_FALSE(f.fire());
    EXPECT_TRUE(has(f.failure(), {"tap 'gpu'", "CUDA failed"})) << f.failure();
  }
  f.new_run();
  fake.fail("wait");
  EXPECT_TRUE(f.fire());
  try {
    barrier();
    ADD_FAILURE() << "the barrier says nothing";
  } catch (const CallbackError& e) {
    EXPECT_TRUE(has(e.what(), {"tap 'gpu'", "CUDA failed to bring a tap's value to the host"}))
        << e.what();
  }
  EXPECT_EQ(seen, 0);
  EXPECT_TRUE(f.fire());
  barrier();
  EXPECT_EQ(seen, 1);
}

TEST_F(Cuda, PackedAndEmptyLeavesAndMasks) {
  RecordProperty("covers", "GPU-10");
  std::vector<int> seen;
  Firing f({type<float>({0}), make_type(DType::s4, {5})}, {make_type(DType::s4, {5})},
           [&](std::span<const AnyView> in, std::span<const AnyMutableView> out) {
             EXPECT_NE(in[0].data(), nullptr);
             for (int i = 0; i < 5; ++i) {
               seen.push_back(reinterpret_cast<const std::int8_t*>(in[1].data())[i]);
               reinterpret_cast<std::int8_t*>(out[0].data())[i] =
                   static_cast<std::int8_t>(-seen.back());
             }
           });
  f.data<unsigned char>(1)[0] = 0x21;
  f.data<unsigned char>(1)[1] = 0xf3;
  f.data<unsigned char>(1)[2] = 0x04;
  ASSERT_TRUE(f.fire());
  fake.run(&some_stream);
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3, -1, 4}));
  EXPECT_EQ(f.data<unsigned char>(2)[0], 0xef);
  EXPECT_EQ(f.data<unsigned char>(2)[1], 0x1d);
  EXPECT_EQ(f.data<unsigned char>(2)[2] & 0x0f, 0x0c);
}

TEST_F(Cuda, StreamsDoNotWaitForEachOther) {
  RecordProperty("covers", "GPU-09");
  Firing a = sum_of_five(), b = sum_of_five();
  FakeCuda::driver().fill(a.buffers()[0], 0, 4, &other_stream);
  ASSERT_TRUE(a.fire(&some_stream));
  EXPECT_EQ(fake.queued(&other_stream), 1u);
  ASSERT_TRUE(b.fire(&other_stream));
  fake.run(&some_stream);
  fake.run(&other_stream);
  EXPECT_EQ(*a.data<float>(6) + *b.data<float>(6), 10);
}

}  // namespace
}  // namespace postern
