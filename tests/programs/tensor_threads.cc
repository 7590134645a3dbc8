// Tensors are values: any number of threads read, copy, pass and drop them at once. Usage:
// tensor_threads CASE ROUNDS
#include <postern/postern.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace pn = postern;
using Floats = std::vector<float>;

namespace {

std::atomic<int> wrong{0};

void expect(bool right) { wrong += !right; }

/// `act(thread)` on 8 threads that begin together.
void together(const std::function<void(int)>& act) {
  constexpr int count = 8;
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < count) std::this_thread::yield();
      try {
        act(t);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
}

Floats counting(std::size_t n) {
  Floats out(n);
  std::iota(out.begin(), out.end(), 0.0f);
  return out;
}

float total(const Floats& values) { return std::accumulate(values.begin(), values.end(), 0.0f); }

pn::Tensor made(std::size_t n) {  // by a program
  return pn::tensor<float>(counting(n)) + 0.0f;
}

void read_result() {
  const pn::Tensor x = made(100);
  const Floats want = counting(100);
  together([&](int) {
    for (int i = 0; i < 500; ++i) expect(x.to_vector<float>() == want);
  });
}

void read_number() {
  const pn::Tensor x = pn::Tensor(1.0f) + 1.0f;
  together([&](int) {
    for (int i = 0; i < 500; ++i) expect(x.item<float>() == 2);
  });
}

void read_unfinished() {  // all wait for what is still being computed
  const pn::Tensor ones = pn::full(pn::type<float>({200, 200}), 1.0f), x = pn::matmul(ones, ones);
  together([&](int) { expect(x.to_vector<float>()[7] == 200); });
}

void host_tensor() {  // read, sent to the device and used
  const auto f = pn::jit([](pn::Tensor v) { return v * 2.0f; });
  for (const std::size_t n : {std::size_t{3}, std::size_t{2000}}) {
    const pn::Tensor x = pn::tensor<float>(counting(n));
    together([&](int t) {
      for (int i = 0; i < 50; ++i) {
        if ((i + t) % 2)
          expect(x.to_vector<float>()[2] == 2);
        else
          expect(f(x).to_vector<float>()[2] == 4);
      }
    });
  }
}

void copies() {  // the last to drop it may be any thread
  for (int i = 0; i < 5; ++i) {
    auto x = std::make_unique<pn::Tensor>(made(10));
    std::vector<pn::Tensor> each(8, *x);
    x.reset();
    together([&](int t) {
      pn::Tensor mine = std::move(each[static_cast<std::size_t>(t)]);
      const pn::Tensor copy = mine;
      mine = pn::Tensor();
      expect(copy.to_vector<float>()[9] == 9);
    });
  }
}

void parallel_capture() {  // elements of one batch read one tensor
  const pn::Tensor x = made(50), from_host = pn::tensor<float>(counting(50));
  const auto f = pn::jit(pn::vmap([&](pn::Tensor v) {
    return pn::call(
        {.vmap = pn::VmapMethod::parallel}, v.type(),
        [&](float n) {
          for (int i = 0; i < 20; ++i) expect(total(x.to_vector<float>()) == 1225);
          return n + total((from_host + 1.0f).to_vector<float>());
        },
        v);
  }));
  const Floats y = f(pn::tensor<float>(counting(16))).to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) expect(y[i] == static_cast<float>(i) + 1275);
}

void devices_capture() {  // functions on eight devices read and use one tensor
  const pn::Tensor x = made(50), from_host = pn::tensor<float>(counting(50));
  const pn::Mesh mesh({{"i", 8}});
  const auto f = pn::jit(pn::shard_map(
      [&](pn::Tensor v) {
        return pn::call(
            v.type(),
            [&](pn::View<const float> in, pn::View<float> out) {
              for (int i = 0; i < 20; ++i) expect(total(x.to_vector<float>()) == 1225);
              out[0] = in[0] + total(from_host.to_vector<float>()) +
                       (from_host + x).to_vector<float>()[2];
            },
            v);
      },
      mesh, {.in = {pn::P("i")}, .out = {pn::P("i")}}));
  const Floats y = f(pn::tensor<float>(counting(8))).to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) expect(y[i] == static_cast<float>(i) + 1229);
}

void staged_branches() {  // batched functions share operands
  const auto plus = [](float by) {
    return [by](pn::Tensor v, pn::Tensor w) {
      return pn::call(
          {.vmap = pn::VmapMethod::parallel}, v.type(),
          [by](float n, float m) { return n + m + by; }, v, w);
    };
  };
  const auto f = pn::jit(
      pn::vmap([=](pn::Tensor p, pn::Tensor v) { return pn::cond(p, plus(1), plus(2), v, v); }),
      {.mode = pn::Mode::staged});
  const Floats y = f(pn::tensor<bool>({true, false, true, false}), pn::tensor<float>({1, 2, 3, 4}))
                       .to_vector<float>();
  expect(y == Floats{3, 6, 7, 10});
}

void staged_operand() {  // independent calls of one operand
  const auto f = pn::jit(
      [](pn::Tensor v) {
        pn::Tensor sum = v;
        for (int i = 0; i < 6; ++i)
          sum = sum + pn::call(
                          v.type(),
                          [](pn::View<const float> in, pn::View<float> out) {
                            std::copy(in.begin(), in.end(), out.begin());
                          },
                          v);
        return sum;
      },
      {.mode = pn::Mode::staged});
  const pn::Tensor x = made(20);
  together([&](int) { expect(f(x).to_vector<float>()[3] == 21); });
}

void sharded() {  // gathered, and its parts read
  const pn::Tensor x = pn::device_put(made(64), pn::Sharding(pn::Mesh({{"i", 8}}), pn::P("i")));
  const Floats want = counting(64);
  together([&](int t) {
    for (int i = 0; i < 5; ++i) {
      expect(x.to_vector<float>() == want);
      expect(pn::shards_of(x)[static_cast<std::size_t>(t)].data.to_vector<float>()[1] ==
             static_cast<float>(8 * t + 1));
      expect((x + x).to_vector<float>()[63] == 126);
    }
  });
}

void moved() {  // to other devices while it is read
  const pn::Tensor x = made(2000), from_host = pn::tensor<float>(counting(2000));
  const Floats want = counting(2000);
  together([&](int t) {
    for (int i = 0; i < 20; ++i) {
      expect(pn::device_put(x, (t + i) % 8).to_vector<float>() == want);
      expect((pn::device_put(from_host, t) + 1.0f).to_vector<float>()[3] == 4);
      expect(x.to_vector<float>() == want);
    }
  });
}

void nested() {  // functions run programs on lanes of their own, which see one tensor's memory
  const pn::Tensor x = made(2000);
  const auto inner = pn::jit([](pn::Tensor v) {
    return pn::call(
        pn::type<float>(), [](pn::View<const float> in) { return in[5]; }, v);
  });
  const auto f = pn::jit([&](pn::Tensor v) {
    return pn::call(
        v.type(), [&](float n) { return n + inner(x).item<float>() + x.to_vector<float>()[1]; }, v);
  });
  together([&](int t) {
    for (int i = 0; i < 10; ++i)
      expect(f(pn::Tensor(static_cast<float>(t))).item<float>() == static_cast<float>(t) + 6);
  });
}

void donated() {  // who reads sees the values, or that they are gone
  const auto take = pn::jit([](pn::Tensor v) { return v - 1.0f; }, {.donate = {0}});
  const auto use = pn::jit([](pn::Tensor v) { return v + 1.0f; });
  for (int i = 0; i < 20; ++i) {
    const pn::Tensor x = made(1000);
    const Floats want = counting(1000);
    std::atomic<int> takers{0};
    together([&](int t) {
      try {
        if (t < 2) {
          expect(take(x).to_vector<float>()[9] == 8);
          ++takers;
        } else if (t < 4) {
          expect(use(x).to_vector<float>()[9] == 10);
        } else {
          for (int n = 0; n < 20; ++n) expect(x.to_vector<float>() == want);
        }
      } catch (const pn::TypeError& e) {
        if (!std::strstr(e.what(), "donated")) throw;
      }
    });
    expect(takers == 1);
  }
}

/// Each thread takes what the other one reads: XLA lets two such runs wait for each other.
void exchanged() {
  const auto take = pn::jit(
      [](pn::Tensor x, std::vector<pn::Tensor> many, pn::Tensor y) {
        for (const pn::Tensor& m : many) x = x + m;
        return x + y;
      },
      {.donate = {2}});
  const auto use = pn::jit([](pn::Tensor v) { return v + 1.0f; });
  std::vector<pn::Tensor> many;  // so that arguments take a while
  for (int i = 0; i < 100; ++i) many.push_back(made(64));
  for (const pn::Tensor& m : many) m.block_until_ready();
  for (int i = 0; i < 30; ++i) {
    const pn::Tensor x = pn::tensor<float>(counting(64)), y = pn::tensor<float>(counting(64));
    for (int n = 0; n < 3; ++n) {  // they have been sent
      use(x).block_until_ready();
      use(y).block_until_ready();
    }
    together([&](int t) {
      if (t > 1) return;
      try {
        const pn::Tensor sum = t ? take(y, many, x) : take(x, many, y);
        expect(sum.to_vector<float>()[9] == 102 * 9);
      } catch (const pn::TypeError& e) {
        if (!std::strstr(e.what(), "donated")) throw;
      }
    });
  }
}

const std::map<std::string, void (*)()> cases = {{"read_result", read_result},
                                                 {"read_number", read_number},
                                                 {"read_unfinished", read_unfinished},
                                                 {"host_tensor", host_tensor},
                                                 {"copies", copies},
                                                 {"parallel_capture", parallel_capture},
                                                 {"devices_capture", devices_capture},
                                                 {"staged_branches", staged_branches},
                                                 {"staged_operand", staged_operand},
                                                 {"sharded", sharded},
                                                 {"moved", moved},
                                                 {"nested", nested},
                                                 {"donated", donated},
                                                 {"exchanged", exchanged}};

}  // namespace

int main(int, char** argv) {
  pn::configure({.cpu_devices = 8});
  const auto act = cases.at(argv[1]);
  for (int i = std::atoi(argv[2]); i > 0; --i) act();
  if (wrong > 0) std::fprintf(stderr, "%d values are wrong\n", wrong.load());
  return wrong > 0;
}
