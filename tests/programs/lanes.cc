// Many runs inside their calls at once, in the way that the argument says. Ends with code 0 when
// all of them came in.
#include <dlfcn.h>
#include <pjrt_c_api.h>
#include <postern/postern.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

bool wait_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 40'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

/// So many threads whose functions wait for one another.
int together(int count, bool heavy) {
  std::atomic<int> in = 0, right = 0;
  const auto f = pn::jit([&](pn::Tensor x) {
    if (heavy) x = pn::sum(pn::sin(x) * pn::cos(x)) * 0.0f;
    return pn::call(
        pn::type<float>(),
        [&](float v) {
          ++in;
          wait_until([&] { return in == count; });
          return v + 1;
        },
        heavy ? x : pn::sum(x) * 0.0f);
  });
  const pn::Tensor x = pn::ones(pn::type<float>({heavy ? 1 << 18 : 1}));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&] { right += f(x).item<float>() == 1; });
  for (std::thread& t : threads) t.join();
  std::printf("%d of %d came in, %d right\n", in.load(), count, right.load());
  return right == count ? 0 : 1;
}

/// Functions of cancelled runs that never return.
int stuck(int count) {
  static std::atomic<bool> go = false;
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](float v) {
          wait_until([] { return go.load(); });
          return v;
        },
        x);
  });
  for (int i = 0; i < count; ++i) {
    auto run = f.start(pn::Tensor(1.0f));
    run.wait(2ms);
    run.cancel();
  }
  const auto g = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(), [](float v) { return v + 1; }, x);
  });
  const bool right = g(pn::Tensor(1.0f)).item<float>() == 2;
  go = true;
  pn::barrier();
  return right ? 0 : 1;
}

/// A plug-in (libraries/damaged_plugin) that makes one client and no other: who can wait does, and
/// who is nested is refused.
int one_client() {
  static_cast<void>(pn::devices());  // makes the one
  void* const plugin = dlopen(std::getenv("POSTERN_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  if (!plugin) return 2;
  constexpr std::size_t create =
      (offsetof(PJRT_Api, PJRT_Client_Create) - offsetof(PJRT_Api, PJRT_Error_Destroy)) /
      sizeof(void*);
  reinterpret_cast<void (*)(int)>(dlsym(plugin, "test_fail"))(static_cast<int>(create));
  std::atomic<bool> go = false, refused = false;
  std::atomic<int> in = 0;
  const auto f = pn::jit([&](pn::Tensor x) {
    return pn::call(
        x.type(),
        [&](float v) {
          ++in;
          wait_until([&] { return go.load(); });
          return v + 1;
        },
        x);
  });
  auto first = f.start(pn::Tensor(1.0f));
  if (!wait_until([&] { return in == 1; })) return 3;
  auto second = f.start(pn::Tensor(2.0f));
  second.wait(100ms);
  const bool waits = second.status() == pn::RunStatus::running && in == 1;
  const auto plain = pn::jit([](pn::Tensor x) { return x * x; });
  const bool right = plain(pn::Tensor(3.0f)).item<float>() == 9;
  go = true;
  if (first.result().item<float>() != 2 || second.result().item<float>() != 3) return 4;
  const auto outer = pn::jit([&](pn::Tensor x) {
    return pn::call(
        x.type(),
        [&](float v) {
          try {
            return f(pn::Tensor(v)).item<float>();
          } catch (const pn::CallbackError& e) {
            refused = e.code() == pn::ErrorCode::reentry;
            return v;
          }
        },
        x);
  });
  outer(pn::Tensor(1.0f)).block_until_ready();
  std::printf("waits %d right %d refused %d\n", waits, right, refused.load());
  return waits && right && refused && f(pn::Tensor(1.0f)).item<float>() == 2 ? 0 : 1;
}

using Function = std::function<pn::Tensor(pn::Tensor)>;

/// Each link calls the next one on another device.
int chain(int links) {
  Function f = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(), [](float v) { return v + 1; }, x);
  });
  for (int i = 1; i < links; ++i)
    f = pn::jit([next = pn::jit(f), i](pn::Tensor x) {
      return pn::call({.device = i % 4}, x, next, x) + 1.0f;
    });
  const float got = f(pn::Tensor(0.0f)).item<float>();
  std::printf("%g\n", got);
  return got == static_cast<float>(links) ? 0 : 1;
}

/// On these devices: `inside` is called on each, then all meet.
auto on_devices(std::vector<int> devices, std::function<void(int)> inside) {
  const pn::Mesh mesh({{"x", static_cast<std::int64_t>(devices.size())}}, devices);
  return pn::jit(pn::shard_map(
      [=](pn::Tensor v) {
        v = pn::call(
            v.type(),
            [=](const pn::CallInfo& info, pn::View<const float> in, pn::View<float> out) {
              inside(info.device);
              out[0] = in[0] + 1;
            },
            v);
        return pn::psum(v, "x");
      },
      mesh, {.in = {pn::P("x")}, .out = {pn::P()}}));
}

float sum_on(const std::function<pn::Tensor(pn::Tensor)>& f, std::int64_t n) {
  return f(pn::ones(pn::type<float>({n}))).to_vector<float>()[0];
}

int nested(int depth) {
  std::function<void(int)> inside = [](int) {};
  for (int i = 1; i < depth; ++i) {
    auto f = on_devices({0, 1}, inside);
    inside = [f](int) {
      if (sum_on(f, 2) != 4) throw std::runtime_error("wrong");
    };
  }
  return sum_on(on_devices({0, 1}, inside), 2) == 4 ? 0 : 1;
}

/// Two inner runs, one from each device, that wait for one another.
int siblings() {
  std::atomic<int> in = 0;
  auto inner = on_devices({0, 1}, [&](int) {
    ++in;
    wait_until([&] { return in == 4; });
  });
  return sum_on(on_devices({0, 1}, [&](int) { sum_on(inner, 2); }), 2) == 4 && in == 4 ? 0 : 1;
}

/// While one run is inside its calls another one comes, on these devices.
int beside(std::vector<int> devices, bool cancelled) {
  std::atomic<bool> go = false, there = false;
  auto held = on_devices({0, 1}, [&](int) {
    there = true;
    wait_until([&] { return go.load(); });
  });
  auto run = held.start(pn::ones(pn::type<float>({2})));
  if (!wait_until([&] { return there.load(); })) return 1;
  if (cancelled) run.cancel();
  const bool right = sum_on(on_devices(devices, [](int) {}), 2) == 4;
  go = true;
  pn::barrier();
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const int n = argc > 2 ? std::stoi(argv[2]) : 0;
  if (how == "together") return together(n, false);
  if (how == "together heavy") return together(n, true);
  if (how == "stuck") return stuck(n);
  if (how == "one client") return one_client();
  pn::configure({.cpu_devices = 4});
  if (how == "chain") return chain(n);
  if (how == "nested") return nested(n);
  if (how == "siblings") return siblings();
  if (how == "beside disjoint") return beside({2, 3}, false);
  if (how == "beside same") return beside({0, 1}, false);
  if (how == "beside cancelled") return beside({0, 1}, true);
  std::printf("unknown: %s\n", how.c_str());
  return 2;
}
