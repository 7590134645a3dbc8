// Derivatives of torch functions in programs, by torch.
#include <postern/torch.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "torch_test.h"

namespace pn = postern;

namespace {

using namespace torch_test;
using at::Tensor;

pn::Tensor torch_f(pn::Tensor x) {
  return pn::torch::call(
      pn::type<double>(), [](Tensor t) { return (at::sin(t) * t.flip(0)).prod() + t.pow(3).sum(); },
      x);
}
pn::Tensor our_f(pn::Tensor x) {
  return pn::prod(pn::sin(x) * pn::flip(x, {0})) + pn::sum(pn::pow(x, 3.0));
}

TEST(TorchDerivatives, AreTorchsInBothModes) {
  expect_close(values(pn::jit(pn::grad(torch_f))(point)), values(pn::grad(our_f)(point)));
  const auto push = [](auto f) {
    return pn::jit([f](pn::Tensor x, pn::Tensor dx) { return pn::jvp(f, x, dx); });
  };
  const auto [y, dy] = push(torch_f)(point, direction);
  const auto [v, dv] = push(our_f)(point, direction);
  expect_close(values(y), values(v));
  expect_close(values(dy), values(dv));
  expect_close(values(pn::grad(torch_f)(point)), values(pn::grad(our_f)(point)));
}

TEST(TorchDerivatives, AreOfAnyOrderAndMixed) {
  const auto same = [](auto of) {
    expect_close(values(pn::jit(of(torch_f))(point)), values(pn::jit(of(our_f))(point)));
  };
  same([](auto f) { return pn::hessian(f); });
  same([](auto f) { return pn::jacrev(pn::grad(f)); });
  same([](auto f) { return pn::jacfwd(pn::jacfwd(f)); });
  same([](auto f) { return pn::jacrev(pn::jacfwd(f)); });
  same([](auto f) {
    return pn::grad([f](pn::Tensor x) { return pn::sum(pn::square(pn::hessian(f)(x))); });
  });
  same([](auto f) { return pn::jacfwd(pn::hessian(f)); });
}

TEST(TorchDerivatives, OfComplexNumbersAreOurs) {
  using C = std::complex<double>;
  const auto theirs = [](pn::Tensor z) {
    return pn::torch::call(
        pn::type<C>({2}), [](Tensor t) { return at::exp(t) * t.flip(0); }, z);
  };
  const auto ours = [](pn::Tensor z) { return pn::exp(z) * pn::flip(z, {0}); };
  const pn::Tensor z = pn::tensor<C>({C(0.3, 0.4), C(-0.2, 0.9)}),
                   dz = pn::tensor<C>({C(1, 2), C(0, -1)});
  const auto pull = [&](auto f) {
    const auto [y, back] = pn::vjp(f, z);
    return std::get<0>(back(dz)).template to_vector<C>();
  };
  expect_close(pull(theirs), pull(ours));
  expect_close(pn::jvp(theirs, z, dz).second.to_vector<C>(),
               pn::jvp(ours, z, dz).second.to_vector<C>());
  const auto real = [](auto f) {
    return pn::grad([f](pn::Tensor x) { return pn::sum(pn::square(pn::abs(f(x)))); });
  };
  expect_close(real(theirs)(z).to_vector<C>(), real(ours)(z).to_vector<C>());
  const auto second = [&](auto f) {
    return pn::jvp(real(f), z, dz).second.template to_vector<C>();
  };
  expect_close(second(theirs), second(ours), 1e-4);
}

TEST(TorchDerivatives, PassIntegersBy) {
  const auto f = [](pn::Tensor x, pn::Tensor i) {
    const auto [y, order] = pn::torch::call(
        std::pair{x.type(), pn::type<std::int64_t>({3})},
        [](Tensor t, Tensor n) { return at::sort(t.index_select(0, n)); }, x, i);
    return pn::sum(y * pn::convert(order, pn::DType::f64));
  };
  const pn::Tensor i = pn::tensor<std::int64_t>({2, 0, 2});
  // x[i] = 1.1, 0.3, 1.1 sorts to places 1, 0, 2.
  expect_close(values(pn::jit(pn::grad(f))(point, i)), {1.0, 0.0, 2.0});
}

TEST(TorchDerivatives, OfHalfPrecision) {
  for (const pn::DType d : {pn::DType::f16, pn::DType::bf16}) {
    const auto f = [d](pn::Tensor x) {
      const pn::Tensor half = pn::convert(x, d);
      const pn::Tensor y = pn::torch::call(
          half.type(), [](Tensor t) { return t * t; }, half);
      return pn::sum(pn::convert(y, pn::DType::f64));
    };
    expect_close(values(pn::jit(pn::grad(f))(point)), {0.6, 1.4, 2.2}, 0.02);
  }
}

TEST(TorchDerivatives, RunTheFunctionOnce) {
  int calls = 0;
  const auto f = [&](pn::Tensor x) {
    return pn::torch::call(
        pn::type<double>(),
        [&](Tensor t) {
          ++calls;
          return t.square().sum();
        },
        x);
  };
  const auto g = pn::jit(pn::value_and_grad(f));
  for (int i = 1; i <= 3; ++i) {
    const auto [y, dx] = g(point);
    expect_close(values(dx), {0.6, 1.4, 2.2});
    EXPECT_EQ(calls, i);
  }
}

TEST(TorchDerivatives, RunTheFunctionAgainWhereNoGraphIsKept) {
  int calls = 0;
  const auto of = [&](std::size_t kept) {
    calls = 0;
    const auto f = [&, kept](pn::Tensor x) {
      const auto step = [&](pn::Tensor c, pn::Tensor v) {
        const pn::Tensor y = pn::torch::call(
            {.kept = kept}, c.type(),
            [&](Tensor a, Tensor b) {
              ++calls;
              return at::sin(a) * b;
            },
            c, v);
        return std::pair{y, std::tuple<>()};
      };
      return pn::scan(step, pn::Tensor(0.7), x).first;
    };
    return values(pn::jit(pn::grad(f))(pn::tensor<double>({1.1, 1.2, 1.3, 1.4})));
  };
  const auto ours = [](pn::Tensor x) {
    const auto step = [](pn::Tensor c, pn::Tensor v) {
      return std::pair{pn::sin(c) * v, std::tuple<>()};
    };
    return pn::scan(step, pn::Tensor(0.7), x).first;
  };
  const auto right = values(pn::grad(ours)(pn::tensor<double>({1.1, 1.2, 1.3, 1.4})));
  expect_close(of(256), right);
  EXPECT_EQ(calls, 4);
  expect_close(of(2), right);
  EXPECT_EQ(calls, 6);
  expect_close(of(0), right);
  EXPECT_EQ(calls, 8);
}

TEST(TorchDerivatives, OfRandomFunctionsAreThoseOfWhatWasDrawn) {
  torch::manual_seed(3);
  const auto f = [](std::size_t kept) {
    return [kept](pn::Tensor x) {
      return pn::torch::call(
          {.kept = kept}, x.type(), [](Tensor t) { return at::dropout(t, 0.5, true); }, x);
    };
  };
  const pn::Tensor x = pn::ones(pn::type<double>({64}));
  for (const std::size_t kept : {std::size_t{256}, std::size_t{0}}) {
    const auto pulled = pn::jit([&](pn::Tensor v) {
      const auto [y, back] = pn::vjp(f(kept), v);
      return std::pair{y, std::get<0>(back(pn::ones(y.type())))};
    });
    const auto pushed =
        pn::jit([&](pn::Tensor v) { return pn::jvp(f(kept), v, pn::ones(v.type())); });
    for (int i = 0; i < 3; ++i) {
      const auto [y, dx] = pulled(x);
      EXPECT_EQ(values(y), values(dx));
      const auto [z, dz] = pushed(x);
      EXPECT_EQ(values(z), values(dz));
      EXPECT_NE(values(y), values(z));
    }
  }
}

/// What an element of the result depends on is a whole row, times what was drawn for the element.
pn::torch::Function masked() {
  return
      [](Tensor t) { return at::dropout(at::ones_like(t), 0.5, true) * t.square().sum(-1, true); };
}

TEST(TorchDerivatives, OfRandomFunctionsAreForManyDirectionsThoseOfWhatWasDrawn) {
  torch::manual_seed(4);
  for (const auto& method : methods) {
    for (const std::size_t kept : {std::size_t{256}, std::size_t{0}}) {
      const auto f = [&](pn::Tensor x) {
        return pn::torch::call({.vmap = method, .kept = kept}, x.type(), masked(), x);
      };
      // Of one row: J[i][j] = 2 x[j] m[i], and y[i] = 3 m[i]. Directions are the rows of `eye`.
      const pn::Tensor x = pn::tensor<double>({1, 1, 1}), eye = pn::eye(pn::DType::f64, 3, 3);
      const auto [y, columns, rows] = pn::jit([&](pn::Tensor v) {
        const auto [z, push] = pn::linearize(f, v);
        const auto [w, back] = pn::vjp(f, v);
        return std::tuple{pn::concatenate({z, w}, 0), pn::vmap(push)(eye),
                          std::get<0>(pn::vmap(back)(eye))};
      })(x);
      const auto m = values(y), c = values(columns), r = values(rows);
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 3; ++j) {
          EXPECT_DOUBLE_EQ(c[j * 3 + i], m[i] * 2 / 3);
          EXPECT_DOUBLE_EQ(r[i * 3 + j], m[3 + i] * 2 / 3);
        }
      // Symmetric, as it is of one function: H[i][j] = 2 sum(m) d_ij.
      const auto h = values(pn::jit(pn::hessian([&](pn::Tensor v) { return pn::sum(f(v)); }))(x));
      expect_close(h, {h[0], 0, 0, 0, h[0], 0, 0, 0, h[0]});
    }
  }
}

TEST(TorchDerivatives, UnderABatchedConditionAreThoseOfTheCallThatWasTaken) {
  torch::manual_seed(5);
  const auto f = [](pn::Tensor draws, pn::Tensor x) {
    const auto drawn = [](Tensor t) { return at::dropout(t, 0.5, true); };
    const auto thrice = [](Tensor t) { return t * 3; };
    return pn::cond(
        draws, [&](pn::Tensor v) { return pn::torch::call(v.type(), drawn, v); },
        [&](pn::Tensor v) { return pn::torch::call(v.type(), thrice, v); }, x);
  };
  const auto pull = [f](pn::Tensor draws, pn::Tensor x) {
    const auto [y, back] = pn::vjp([&](pn::Tensor v) { return f(draws, v); }, x);
    return std::pair{y, std::get<0>(back(pn::ones(y.type())))};
  };
  const pn::Tensor draws = pn::iota(pn::type<int>({16}), 0) % 2 == 1;
  const auto each = pn::jit(pn::vmap(pull));
  for (int i = 0; i < 3; ++i) {
    const auto [y, dy] = each(draws, pn::ones(pn::type<double>({16, 8})));
    expect_close(y, dy);  // 0, 2 or 3
  }
  // One point for the whole batch, at which numbers are drawn for each element.
  const auto shared = pn::jit(pn::vmap(pull, {.in_axes = {0, pn::unmapped}}));
  for (int i = 0; i < 3; ++i) {
    const auto [y, dy] = shared(draws, pn::ones(pn::type<double>({8})));
    expect_close(y, dy);
  }
}

TEST(TorchDerivatives, OfBatchesOfRandomFunctionsAreThoseOfWhatWasDrawn) {
  torch::manual_seed(5);
  for (const auto& method : methods) {
    for (const std::size_t kept : {std::size_t{256}, std::size_t{0}}) {
      const auto f = [&](pn::Tensor x) {
        return pn::torch::call({.vmap = method, .kept = kept}, x.type(), masked(), x);
      };
      constexpr std::size_t rows = 3, n = 2;
      const pn::Tensor x = pn::ones(pn::type<double>({rows, n}));
      const pn::Tensor directions =
          pn::reshape(pn::eye(pn::DType::f64, rows * n, rows * n), {rows * n, rows, n});
      const auto [y, back, push, inner] = pn::jit([&](pn::Tensor v) {
        const auto [z, pull] = pn::vjp(pn::vmap(f), v);
        const auto [w, move] = pn::linearize(pn::vmap(f), v);
        const auto each = pn::vmap([&](pn::Tensor row) {
          const auto [u, map] = pn::linearize(f, row);
          return std::pair{u, pn::vmap(map)(pn::eye(pn::DType::f64, n, n))};
        })(v);
        return std::tuple{pn::stack({z, w, each.first}), std::get<0>(pn::vmap(pull)(directions)),
                          pn::vmap(move)(directions), each.second};
      })(x);
      const auto m = values(y), b = values(back), p = values(push), e = values(inner);
      const std::size_t all = rows * n;
      for (std::size_t i = 0; i < all; ++i)
        for (std::size_t j = 0; j < all; ++j) {
          const bool same = i / n == j / n;
          EXPECT_DOUBLE_EQ(b[i * all + j], same ? m[i] : 0) << i << " " << j;
          EXPECT_DOUBLE_EQ(p[j * all + i], same ? m[all + i] : 0) << i << " " << j;
          if (same) {
            EXPECT_DOUBLE_EQ(e[(i / n * n + j % n) * n + i % n], m[2 * all + i]);
          }
        }
    }
  }
}

TEST(TorchDerivatives, OfRandomFunctionsOnManyThreadsAreThoseOfWhatWasDrawn) {
  torch::manual_seed(6);
  const pn::Tensor x = pn::ones(pn::type<double>({1000}));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const auto f = [](pn::Tensor v) {
        return pn::torch::call(
            {.kept = 0}, v.type(),
            [](Tensor t) {
              for (int n = 0; n < 4; ++n) t = at::dropout(t, 0.1, true);
              return t;
            },
            v);
      };
      const auto plain = pn::jit(f);
      const auto both = pn::jit([&](pn::Tensor v) {
        const auto [y, back] = pn::vjp(f, v);
        return std::tuple{y, std::get<0>(back(v)), pn::jvp(f, v, v)};
      });
      for (int n = 0; n < 30; ++n) {
        plain(x).block_until_ready();
        const auto [y, dx, pushed] = both(x);
        wrong += values(y) != values(dx);
        wrong += values(pushed.first) != values(pushed.second);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(TorchDerivatives, OfRandomFunctionsMayBeInsideOfOneAnother) {
  torch::manual_seed(7);
  const auto drop = [](Tensor t) { return at::dropout(t, 0.5, true); };
  const auto inner = pn::torch::module(
      pn::jit([&](pn::Tensor v) { return pn::torch::call({.kept = 0}, v.type(), drop, v * 1.0); }));
  const auto f = [&](pn::Tensor v) {
    return pn::torch::call(
        {.kept = 0}, v.type(), [&](Tensor t) { return inner(drop(t)); }, v);
  };
  const pn::Tensor x = pn::ones(pn::type<double>({64}));
  for (int i = 0; i < 3; ++i) {
    const auto [y, dy] = pn::jit([&](pn::Tensor v) { return pn::jvp(f, v, v); })(x);
    EXPECT_EQ(values(y).size(), values(dy).size());
  }
}

TEST(TorchDerivatives, OfFunctionsThatBeginToDrawAreThoseOfWhatWasDrawn) {
  torch::manual_seed(8);
  bool training = false;
  const auto f = [&](pn::Tensor v) {
    return pn::torch::call(
        v.type(), [&](Tensor t) { return at::dropout(t, 0.5, training); }, v);
  };
  const auto pushed = pn::jit([&](pn::Tensor v) { return pn::jvp(f, v, v); });
  for (int i = 0; i < 6; ++i) {
    training = i % 3 > 0;
    const auto [y, dy] = pushed(pn::ones(pn::type<double>({64})));
    EXPECT_EQ(values(y), values(dy));
  }
}

TEST(TorchDerivatives, OfWhatTorchDoesNotSeeAreErrors) {
  const auto f = [](pn::Tensor x) {
    return pn::sum(pn::torch::call(
        x.type(), [](Tensor t) { return t.detach() * 2; }, x));
  };
  try {
    pn::jit(pn::grad(f))(point).block_until_ready();
    FAIL();
  } catch (const pn::CallbackError& error) {
    EXPECT_NE(std::string(error.what()).find("no result depends on what is differentiated"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(pn::jvp(f, point, direction).second.block_until_ready(), pn::CallbackError);
  const auto fill = [](pn::Tensor x) {
    return pn::sum(pn::torch::call(
        x.type(), [](Tensor t, Tensor to) { at::exp_out(to, t); }, x));
  };
  EXPECT_THROW(pn::grad(fill)(point), pn::TypeError);
}

TEST(TorchDerivatives, OfOperandsThatDoNotMatterAreZero) {
  const auto f = [](pn::Tensor x, pn::Tensor y) {
    return pn::sum(pn::torch::call(
        x.type(), [](Tensor a, Tensor) { return a * 2; }, x, y));
  };
  const auto [dx, dy] = pn::jit(pn::grad<0, 1>(f))(point, point);
  expect_close(values(dx), {2, 2, 2});
  expect_close(values(dy), {0, 0, 0});
}

TEST(TorchDerivatives, OfManyCotangentsAtOnceRunTheFunctionOnce) {
  int calls = 0;
  const auto f = [&](pn::Tensor x) {
    return pn::torch::call(
        x.type(),
        [&](Tensor t) {
          ++calls;
          return at::cumsum(t * t, 0);
        },
        x);
  };
  const auto ours = [](pn::Tensor x) { return pn::cumsum(x * x, 0); };
  expect_close(values(pn::jit(pn::jacrev(f))(point)), values(pn::jacrev(ours)(point)));
  EXPECT_EQ(calls, 1);
  expect_close(values(pn::jit(pn::jacfwd(f))(point)), values(pn::jacfwd(ours)(point)));
}

TEST(TorchDerivatives, OfScriptedModules) {
  torch::jit::Module m("m");
  m.define("def forward(self, x):\n  return torch.tanh(x) * x.sin().sum()\n");
  const auto f = [&](pn::Tensor x) {
    return pn::sum(pn::torch::call({.vmap = pn::VmapMethod::sequential}, x.type(), m, x));
  };
  const auto ours = [](pn::Tensor x) { return pn::sum(pn::tanh(x) * pn::sum(pn::sin(x))); };
  const auto plain = pn::jit(f);
  for (int i = 0; i < 4; ++i) {  // torch's compiler begins after two runs
    EXPECT_NEAR(plain(point).item<double>(), ours(point).item<double>(), 1e-12);
    expect_close(values(pn::jit(pn::grad(f))(point)), values(pn::grad(ours)(point)));
    expect_close(values(pn::jit(pn::hessian(f))(point)), values(pn::hessian(ours)(point)));
    expect_close(values(pn::jvp(f, point, direction).second),
                 values(pn::jvp(ours, point, direction).second));
  }
}

TEST(TorchDerivatives, GoThroughCheckpoint) {
  expect_close(values(pn::jit(pn::grad(pn::checkpoint(torch_f)))(point)),
               values(pn::grad(our_f)(point)));
}

}  // namespace
