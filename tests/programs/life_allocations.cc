// Counts the allocations of a hundred thousand calls in a loop: there must be none for each call.
#include <postern/postern.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

namespace pn = postern;

namespace {
std::atomic<long> allocations{0};
void* allocate(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t size) { return allocate(size, 0); }
void* operator new[](std::size_t size) { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t at) {
  return allocate(size, static_cast<std::size_t>(at));
}
void* operator new[](std::size_t size, std::align_val_t at) {
  return allocate(size, static_cast<std::size_t>(at));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace {

/// Allocations of a run of this program with n steps, after one to warm up.
template <class F>
long counted(const F& f, int n) {
  f(pn::Tensor(n)).block_until_ready();
  const long before = allocations;
  f(pn::Tensor(n)).block_until_ready();
  return allocations - before;
}

template <class Body>
bool quiet(const char* what, Body body) {
  auto f = pn::jit([=](pn::Tensor n) {
    return pn::fori_loop(
        0, n, [=](pn::Tensor, pn::Tensor x) { return body(x); }, pn::zeros(pn::type<float>({4})));
  });
  const long few = counted(f, 1000), many = counted(f, 101'000);
  std::printf("%s: %ld allocations for 1000 calls, %ld for 101000\n", what, few, many);
  return many - few < 100;
}

/// Asynchronous taps, when there is memory for all that may be waiting: the first round holds every
/// firing back.
bool quiet_stream() {
  static std::atomic<bool> go{false};
  auto f = pn::jit([](pn::Tensor x) {
    return pn::fori_loop(
        0, 50'000,
        [](pn::Tensor, pn::Tensor v) {
          return pn::tap({.mode = pn::TapMode::async}, v + 1.0f, [](const pn::TapInfo&, float) {
            while (!go) std::this_thread::yield();
          });
        },
        x);
  });
  f(pn::Tensor(0.0f)).block_until_ready();
  go = true;
  pn::barrier();
  const long before = allocations;
  f(pn::Tensor(0.0f)).block_until_ready();
  pn::barrier();
  const long many = allocations - before;
  std::printf("asynchronous taps: %ld allocations for 50000\n", many);
  return many < 100;
}

}  // namespace

int main() {
  bool ok = quiet("in place", [](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](pn::View<const float> in, pn::View<float> out) {
          for (int i = 0; i < 4; ++i) out[i] = in[i] + 1;
        },
        x);
  });
  ok &= quiet("with information", [](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](const pn::CallInfo& info, pn::AnyView in, pn::AnyMutableView out) {
          out.as<float>()[0] =
              in.as<float>()[0] + float(info.device) + float(info.stop.stop_requested());
        },
        x);
  });
  ok &= quiet("all leaves", [](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](std::span<const pn::AnyView> in, std::span<const pn::AnyMutableView> out) {
          out[0].as<float>()[1] = in[0].as<float>()[0];
        },
        x);
  });
  ok &= quiet("ordered", [](pn::Tensor x) {
    return pn::call(
        {.effect = pn::Effect::ordered}, x.type(),
        [](pn::View<const float> in, pn::View<float> out) { out[0] = in[0]; }, x);
  });
  ok &= quiet("by value", [](pn::Tensor x) {
    return x + pn::call(
                   pn::type<float>(), [](pn::View<const float> in) { return in[0]; }, x);
  });
  ok &=
      quiet("a tap", [](pn::Tensor x) { return pn::tap(x + 1.0f, [](pn::View<const float>) {}); });
  ok &= quiet_stream();
  return ok ? 0 : 1;
}
