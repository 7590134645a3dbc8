// Calls that overlap under vmap and derivatives.
#include "overlap_test.h"

#include <atomic>
#include <functional>

namespace postern {
namespace {

using test::expect_error, test::has;
using Floats = std::vector<float>;

TEST(Overlap, VmapStartsOneForEachElement) {
  RecordProperty("covers", "OVERLAP-07");
  const auto square = [](float v) { return v * v; };
  for (const VmapMethod method : {VmapMethod::sequential, VmapMethod::parallel}) {
    auto f = jit(
        vmap([&](Tensor x) { return wait(start_call({.vmap = method}, x.type(), square, x)); }));
    EXPECT_EQ(f(tensor<float>({1, 2, 3})).to_vector<float>(), (Floats{1, 4, 9}));
    auto nested = jit(vmap(
        vmap([&](Tensor x) { return wait(start_call({.vmap = method}, x.type(), square, x)); })));
    EXPECT_EQ(nested(tensor<float>({1, 2, 3, 4}, {2, 2})).to_vector<float>(),
              (Floats{1, 4, 9, 16}));
  }
  std::atomic<int> entered = 0;
  for (const VmapMethod method : {VmapMethod::expand_dims, VmapMethod::broadcast_all}) {
    auto f = jit(vmap(
        [&](Tensor x, Tensor shift) {
          return wait(start_call(
              {.vmap = method}, x.type(),
              [&](AnyView v, AnyView by, AnyMutableView out) {
                ++entered;
                const auto in = v.as<float>(), s = by.as<float>();
                for (std::int64_t i = 0; i < in.size(); ++i)
                  out.as<float>()[i] = in[i] + s[i % s.size()];
              },
              x, shift));
        },
        {.in_axes = {0, unmapped}}));
    entered = 0;
    EXPECT_EQ(
        f(tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2}), tensor<float>({10, 20})).to_vector<float>(),
        (Floats{11, 22, 13, 24, 15, 26}));
    EXPECT_EQ(entered.load(), 1);
  }
}

TEST(Overlap, VmapOfLoopsThatEndAtDifferentTimes) {
  RecordProperty("covers", "OVERLAP-07");
  std::atomic<int> started = 0;
  auto halve = [&](const Tensor& x) {
    return start_call(
        x.type(),
        [&](float v) {
          ++started;
          return v / 2;
        },
        x);
  };
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  auto f = jit(vmap([&](Tensor x) {
    return while_loop([](Tensor v, Pending<Tensor>) { return v > 1.0f; },
                      [&](Tensor, Pending<Tensor> half) {
                        Tensor v = wait(half);
                        return Carry{v, halve(v)};
                      },
                      Carry{x, halve(x)})
        .first;
  }));
  EXPECT_EQ(f(tensor<float>({8, 1, 2})).to_vector<float>(), (Floats{1, 1, 1}));
  barrier();
  EXPECT_EQ(started.load(), 3 + 4) << "one for each element, and one for each of its steps";
}

TEST(Overlap, WhatElementsShareIsWaitedForOnce) {
  RecordProperty("covers", "OVERLAP-07");
  std::atomic<int> runs = 0;
  auto f = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start_call(
        shift.type(),
        [&](float v) {
          ++runs;
          return v * 10;
        },
        shift);
    return vmap([&](Tensor x) { return x + wait(shared); })(xs);
  });
  EXPECT_EQ(f(tensor<float>({1, 2, 3}), 2.0f).to_vector<float>(), (Floats{21, 22, 23}));
  EXPECT_EQ(runs.load(), 1);
}

TEST(Overlap, WhatElementsShareIsWaitedForOnceWhateverBranchTheyTake) {
  RecordProperty("covers", "OVERLAP-07");
  std::atomic<int> runs = 0;
  const auto start = [&](const Tensor& x) {
    return start_call(
        {.name = "shared"}, x.type(),
        [&](float v) {
          ++runs;
          return v * 10;
        },
        x);
  };
  auto f = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start(shift), other = start(shift + 1.0f);
    return vmap([&](Tensor x) {
      const Tensor of_three =
          switch_(convert<int>(x),
                  std::vector<std::function<Tensor(Tensor)>>{
                      [&](Tensor v) { return v + wait(shared); }, [](Tensor v) { return v; },
                      [&](Tensor v) { return wait(other) - wait(shared) * v; }},
                  x);
      return of_three;
    })(xs);
  });
  EXPECT_EQ(f(tensor<float>({0, 1, 2, 0}), 2.0f).to_vector<float>(), (Floats{20, 1, -10, 20}));
  EXPECT_EQ(f(tensor<float>({1, 1}), 2.0f).to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(runs.load(), 2 * 2);
  auto nested = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start(shift);
    const auto one = [&](Tensor x) {
      return cond(
          x > 1.0f, [&](Tensor v) { return v + wait(shared); },
          [&](Tensor v) { return v - wait(shared); }, x);
    };
    return vmap(vmap(one))(xs);
  });
  EXPECT_EQ(nested(tensor<float>({0, 1, 2, 3}, {2, 2}), 2.0f).to_vector<float>(),
            (Floats{-20, -19, 22, 23}));
  auto by_both = jit([&](Tensor xs, Tensor ys) {  // the inner masks are not those of the branches
    const auto started = vmap([&](Tensor y) { return start(y); })(ys);
    const auto some = [&](auto takes) {
      return [&, takes](Tensor) {
        return vmap([&](auto pending, Tensor y) {
          return cond(
              takes(y), [&](Tensor) { return wait(pending); }, [](Tensor v) { return v * 0.0f; },
              y);
        })(started, ys);
      };
    };
    return vmap([&](Tensor x) {
      return cond(x > 0.0f, some([](Tensor y) { return y > 0.0f; }),
                  some([](Tensor y) { return y <= 0.0f; }), x);
    })(xs);
  });
  EXPECT_EQ(by_both(tensor<float>({1, -1}), tensor<float>({3, -3})).to_vector<float>(),
            (Floats{30, 0, 0, -30}));
  auto twice = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start(shift);
    return vmap([&](Tensor x) {
      const Tensor once = cond(
          x > 1.0f, [&](Tensor v) { return v + wait(shared); },
          [&](Tensor v) { return v - wait(shared); }, x);
      return once + cond(
                        x > 2.0f, [&](Tensor v) { return wait(shared) + v; },
                        [](Tensor v) { return v; }, x);
    })(xs);
  });
  expect_error<CallbackError>(
      [&] {
        twice(tensor<float>({0, 3}), 2.0f).to_vector<float>();
      },
      {"shared", "waited for before"});
}

TEST(Overlap, WhatIsDifferentiatedNeedsARule) {
  RecordProperty("covers", "OVERLAP-10");
  const auto squared = [](Tensor x) {
    return wait(start_call(
        {.name = "sq"}, x.type(), [](float v) { return v * v; }, x));
  };
  expect_error<TypeError>([&] { jit(grad(squared))(3.0f); }, {"call 'sq' has no derivative"});
  auto with_rule = custom_vjp(
      squared,
      [&](Tensor x) {
        return std::pair{squared(x), x};
      },
      [](Tensor x, Tensor ct) { return 2.0f * x * ct; });
  EXPECT_EQ(jit(grad(with_rule))(3.0f).item<float>(), 6);
  auto begins = custom_vjp(
      [](Tensor x) {
        return start_call(
            {.name = "sq"}, x.type(), [](float v) { return v; }, x);
      },
      [](Tensor x) {
        return std::pair{start_call(
                             {.name = "sq"}, x.type(), [](float v) { return v; }, x),
                         x};
      },
      [](Tensor x, Pending<Tensor>) { return x; });
  expect_error<TypeError>([&] { jit([&](Tensor x) { return wait(begins(x)); })(3.0f); },
                          {"custom_vjp", "'sq'", "start_call_with_vjp"});
}

TEST(Overlap, ADerivativeOnTheHost) {
  RecordProperty("covers", "OVERLAP-10");
  std::atomic<int> forward = 0, backward = 0;
  const HostVjp by_two = [&](float x, float, float ct, View<float> dx) {
    ++backward;
    dx[0] = 2 * x * ct;
  };
  const auto square = [&](const Tensor& x) {
    return start_call_with_vjp(
        {.name = "sq"}, x.type(),
        [&](float v) {
          ++forward;
          return v * v;
        },
        by_two, x);
  };
  auto f = [&](Tensor x) {
    const auto a = square(x);
    const auto b = square(x + 1.0f);
    return wait(a) * wait(b);
  };
  EXPECT_EQ(jit(grad(f))(2.0f).item<float>(), 2 * 2 * 9 + 4 * 2 * 3);
  EXPECT_EQ(forward.load(), 2);
  EXPECT_EQ(backward.load(), 2);
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  auto loop = [&](Tensor x) {
    return fori_loop(
               0, 3,
               [&](Tensor, Tensor sum, Pending<Tensor> p) {
                 Tensor y = wait(p);
                 return Carry{sum + y, square(y)};
               },
               Carry{Tensor(0.0f), square(x)})
        .first;
  };
  EXPECT_EQ(jit(loop)(2.0f).item<float>(), 4 + 16 + 256);
  EXPECT_EQ(jit(grad(loop))(2.0f).item<float>(), 4 + 32 + 8 * 128) << "of x^2 + x^4 + x^8";
  EXPECT_EQ(jit(vmap(grad(loop)))(tensor<float>({1, 2})).to_vector<float>(), (Floats{14, 1060}));
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) {
          return fori_loop(
                     0, 3,
                     [&](Tensor, Tensor v, Pending<Tensor> p) {
                       return Carry{
                           v + wait(p),
                           start_call_with_vjp(
                               x.type(), [](float u) { return u; },
                               [](float, float, float ct, View<float> dx) { dx[0] = ct; }, v)};
                     },
                     Carry{x, square(x)})
              .first;
        })(2.0f);
      },
      {"fori_loop"});
  barrier();  // the last call of each loop, for which nobody waits, counts in what is above
}

}  // namespace
}  // namespace postern
