// Derivatives through what torch's forward mode and torch's vmap do not see: C++ classes derived
// from torch::autograd::Function, compiled scripts, parts without gradients.
#include <postern/torch.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "torch_test.h"

namespace pn = postern;

namespace {

using namespace torch_test;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Cube : Function<Cube> {
  static Tensor forward(AutogradContext* context, Tensor x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static variable_list backward(AutogradContext* context, variable_list ct) {
    const Tensor x = context->get_saved_variables()[0];
    return {ct[0] * 3 * x * x};
  }
};

/// A rounding that counts as the identity in derivatives.
struct StraightThrough : Function<StraightThrough> {
  static Tensor forward(AutogradContext*, Tensor x) { return x.round(); }
  static variable_list backward(AutogradContext*, variable_list ct) { return {ct[0]}; }
};

/// The identity, with derivatives of the other sign.
struct Reversed : Function<Reversed> {
  static Tensor forward(AutogradContext*, Tensor x) { return x; }
  static variable_list backward(AutogradContext*, variable_list ct) { return {-ct[0]}; }
};

/// Its backward is a loop over data, as by hand-written kernels.
struct Kernel : Function<Kernel> {
  static Tensor forward(AutogradContext* context, Tensor x) {
    context->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(AutogradContext* context, variable_list ct) {
    const Tensor x = context->get_saved_variables()[0].contiguous(), g = ct[0].contiguous();
    Tensor out = at::empty_like(x);
    for (std::int64_t i = 0; i < x.numel(); ++i)
      out.data_ptr<double>()[i] = 2 * x.data_ptr<double>()[i] * g.data_ptr<double>()[i];
    return {out};
  }
};

/// In place.
struct Twice : Function<Twice> {
  static Tensor forward(AutogradContext* context, Tensor x) {
    x.mul_(2);
    context->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext*, variable_list ct) { return {ct[0] * 2}; }
};

/// A torch function of one tensor as a program's, and its sum.
template <class F>
auto called(F f) {
  return [f](pn::Tensor x) { return pn::torch::call({.name = "part"}, x.type(), f, x); };
}
template <class F>
auto summed(F f) {
  return [f](pn::Tensor x) { return pn::sum(f(x)); };
}

template <class F, class G>
void expect_same_derivatives(F theirs, G ours) {
  const auto a = summed(theirs);
  const auto b = summed(ours);
  const auto same = [](auto f, auto g, const pn::Tensor& at) {
    expect_close(values(pn::jit(f)(at)), values(pn::jit(g)(at)));
  };
  const auto tangent = [](auto f) {
    return [f](pn::Tensor x) { return pn::jvp(f, x, direction).second; };
  };
  same(theirs, ours, point);
  same(pn::grad(a), pn::grad(b), point);
  same(tangent(theirs), tangent(ours), point);
  same(tangent(pn::grad(a)), tangent(pn::grad(b)), point);            // forward over reverse
  same(pn::jacrev(pn::grad(a)), pn::jacrev(pn::grad(b)), point);      // reverse over reverse
  same(pn::jacrev(pn::jacfwd(a)), pn::jacrev(pn::jacfwd(b)), point);  // reverse over forward
  same(pn::jacfwd(pn::jacfwd(a)), pn::jacfwd(pn::jacfwd(b)), point);
  same(pn::jacfwd(pn::hessian(a)), pn::jacfwd(pn::hessian(b)), point);
  same(pn::vmap(theirs), pn::vmap(ours), rows);
  same(pn::vmap(pn::grad(a)), pn::vmap(pn::grad(b)), rows);
  same(pn::vmap(tangent(theirs)), pn::vmap(tangent(ours)), rows);
  same(pn::vmap(pn::hessian(a)), pn::vmap(pn::hessian(b)), rows);
}

TEST(TorchForeign, ClassesArePartsOfDerivatives) {
  expect_same_derivatives(called([](Tensor x) { return Cube::apply(x) + x.sin(); }),
                          [](pn::Tensor x) { return x * x * x + pn::sin(x); });
}

TEST(TorchForeign, ClassesWithinEachOtherAreToo) {
  expect_same_derivatives(
      called([](Tensor x) { return Cube::apply(x.cos() * Cube::apply(x)) * x; }),
      [](pn::Tensor x) { return pn::pow(pn::cos(x) * x * x * x, 3.0) * x; });
}

TEST(TorchForeign, DerivativesAreWhatAClassSaysInBothModes) {
  const auto straight = called([](Tensor x) { return StraightThrough::apply(x) * x; });
  const auto reversed = called([](Tensor x) { return Reversed::apply(x) + x.sin(); });
  const auto tangent = [](auto f, const pn::Tensor& x) {
    return values(
        pn::jit([f](pn::Tensor v) { return pn::jvp(f, v, pn::ones(v.type())).second; })(x));
  };
  const auto gradient = [](auto f, const pn::Tensor& x) {
    return values(pn::jit(pn::grad(summed(f)))(x));
  };
  const std::vector<double> a = {0.3, 1 + 0.7, 1 + 1.1};  // round(x) + x
  const std::vector<double> b = {std::cos(0.3) - 1, std::cos(0.7) - 1, std::cos(1.1) - 1};
  for (int i = 0; i < 2; ++i) {
    expect_close(tangent(straight, point), a);
    expect_close(gradient(straight, point), a);
    expect_close(tangent(reversed, point), b);
    expect_close(gradient(reversed, point), b);
  }
  const auto batch = [&](auto f) { return pn::vmap(f); };
  for (const auto& [f, first] : {std::pair(batch(straight), a)}) {
    const auto dy = tangent(f, rows);
    expect_close({dy.begin(), dy.begin() + 3}, first);
    expect_close(dy, gradient(f, rows));
  }
  const auto dy = tangent(batch(reversed), rows);
  expect_close({dy.begin(), dy.begin() + 3}, b);
  expect_close(dy, gradient(batch(reversed), rows));
}

TEST(TorchForeign, ClassesMayWriteToCopies) {
  expect_same_derivatives(called([](Tensor x) {
                            Tensor y = x.sin();
                            Twice::apply(y.slice(0, 0, 2));
                            return y * x;
                          }),
                          [](pn::Tensor x) {
                            return pn::sin(x) * x * pn::tensor<double>({2.0, 2.0, 1.0});
                          });
}

TEST(TorchForeign, WhatTorchCannotDifferentiateTwiceIsRefused) {
  const auto f = called([](Tensor x) { return Kernel::apply(x) + x.pow(3); });
  const auto sum = summed(f);
  const auto first = [](double x) { return 2 * x + 3 * x * x; };
  expect_close(values(pn::jit(pn::grad(sum))(point)), {first(0.3), first(0.7), first(1.1)});
  const auto batched = values(pn::jit(pn::vmap(pn::grad(sum)))(rows));
  expect_close(batched, {first(0.3), first(0.7), first(1.1), first(-0.4), first(0.2), first(1.9)});
  const auto refused = [](auto g, const pn::Tensor& x) {
    for (int i = 0; i < 2; ++i) {
      try {
        pn::jit(g)(x).block_until_ready();
        ADD_FAILURE() << "not refused";
      } catch (const pn::CallbackError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("torch::autograd::Function"), std::string::npos) << text;
        EXPECT_NE(text.find("Kernel"), std::string::npos) << text;
        EXPECT_NE(text.find("reverse mode alone"), std::string::npos) << text;
        try {
          std::rethrow_exception(error.cause());
        } catch (const pn::Error& cause) {
          EXPECT_EQ(cause.code(), pn::ErrorCode::failed_precondition);
        }
      }
    }
  };
  const auto tangent = [](auto g) {
    return [g](pn::Tensor x) { return pn::jvp(g, x, pn::ones(x.type())).second; };
  };
  refused(tangent(f), point);
  refused(tangent(pn::grad(sum)), point);
  refused(pn::jacrev(pn::grad(sum)), point);
  refused(pn::jacfwd(pn::jacfwd(sum)), point);
  refused(pn::vmap(tangent(f)), rows);
  refused(pn::vmap(pn::jacrev(pn::grad(sum))), rows);
}

TEST(TorchForeign, TangentsAreDifferentiatedByAutograd) {
  const auto check = [](auto theirs, auto ours) {
    const auto same = [&](auto of) {
      expect_close(values(pn::jit(of(theirs))(point)), values(pn::jit(of(ours))(point)));
    };
    for (int i = 0; i < 2; ++i) {
      same([](auto f) { return pn::jacfwd(f); });
      same([](auto f) { return pn::jacrev(pn::jacfwd(f)); });
      same([](auto f) { return pn::jacfwd(pn::jacfwd(f)); });
    }
  };
  // Torch's tangent of a determinant has the factors of the matrix as constants.
  check(called([](Tensor x) {
          return std::get<1>(at::slogdet(at::outer(x, x) + at::eye(3, at::kDouble))) * x;
        }),
        [](pn::Tensor x) { return pn::log(1.0 + pn::sum(x * x)) * x; });
  // That of a softmax overwrites what its derivative needs, that of a norm has a wrong shape.
  check(called([](Tensor x) { return at::softmax(x, 0); }),
        [](pn::Tensor x) { return pn::exp(x) / pn::sum(pn::exp(x)); });
  check(called([](Tensor x) { return x.norm() * x; }),
        [](pn::Tensor x) { return pn::sqrt(pn::sum(x * x)) * x; });
}

TEST(TorchForeign, ScriptsInFunctionsKeepTheirTangents) {
  torch::jit::Module m("m");
  m.define("def forward(self, x):\n  return torch.tanh(x) * x.sin() + torch.relu(x)\n");
  const auto theirs = called([&](Tensor x) { return m.forward({x}).toTensor() + x.sin(); });
  const auto ours = [](pn::Tensor x) {
    return pn::tanh(x) * pn::sin(x) + pn::maximum(x, 0.0) + pn::sin(x);
  };
  for (int i = 0; i < 4; ++i)  // torch's compiler begins after two runs
    expect_same_derivatives(theirs, ours);
}

TEST(TorchForeign, PartsWithoutGradientsAreConstantInBothModes) {
  const auto f = called([](Tensor x) {
    Tensor constant;
    {
      const at::NoGradGuard none;
      constant = x * x;
    }
    return constant * x.sin();
  });
  expect_same_derivatives(f, [](pn::Tensor x) { return pn::stop_gradient(x * x) * pn::sin(x); });
}

TEST(TorchForeign, RandomNumbersAreDrawnOnce) {
  torch::manual_seed(3);
  const auto f = called([](Tensor x) { return StraightThrough::apply(at::dropout(x, 0.5, true)); });
  const auto push = [&](auto g) {
    return pn::jit([g](pn::Tensor x) { return pn::jvp(g, x, pn::ones(x.type())); });
  };
  const auto pull = [&](auto g) {
    return pn::jit([g](pn::Tensor x) {
      const auto [y, back] = pn::vjp(g, x);
      return std::pair{y, std::get<0>(back(pn::ones(y.type())))};
    });
  };
  const pn::Tensor x = pn::ones(pn::type<double>({64})), many = pn::ones(pn::type<double>({8, 64}));
  for (int i = 0; i < 3; ++i) {
    for (const auto& [y, dy] :
         {push(f)(x), pull(f)(x), push(pn::vmap(f))(many), pull(pn::vmap(f))(many)}) {
      EXPECT_EQ(values(y), values(dy));  // 0 or 2
      EXPECT_NE(values(y), std::vector<double>(values(y).size(), values(y)[0]));
    }
  }
}

TEST(TorchForeign, BatchesOfClassesWithoutDerivativesAreOneCall) {
  int calls = 0;
  const auto f = called([&](Tensor x) {
    ++calls;
    return Cube::apply(x) + x.sin();
  });
  pn::jit(pn::vmap(f))(rows).block_until_ready();
  EXPECT_EQ(calls, 1);
}

TEST(TorchForeign, LoadedProgramsAreDifferentiatedByTheirDerivatives) {
  const auto f = [](pn::Tensor x) { return pn::sin(x) * x; };
  const auto back = [f](pn::Tensor x, pn::Tensor ct) {
    return std::get<0>(pn::vjp(f, x).second(ct));
  };
  const auto back2 = [back](pn::Tensor x, pn::Tensor ct, pn::Tensor u) {
    return pn::vjp(back, x, ct).second(u);
  };
  const auto loaded = [](const pn::Lowered& program) {
    return pn::load_text(pn::saved_text(program));
  };
  const pn::Tensor a = pn::abstract(pn::type<double>({3}));
  const auto m =
      pn::torch::module(loaded(pn::jit(f).lower(a)),
                        {loaded(pn::jit(back).lower(a, a)), loaded(pn::jit(back2).lower(a, a, a))});
  const auto theirs = [m](pn::Tensor x) {  // torch's vmap cannot look into a program
    return pn::torch::call(
        {.vmap = pn::VmapMethod::sequential}, x.type(), [m](Tensor t) { return m(t) + t; }, x);
  };
  const auto ours = [f](pn::Tensor x) { return f(x) + x; };
  const auto tangent = [](auto g) { return values(pn::jvp(g, point, direction).second); };
  expect_close(tangent(theirs), tangent(ours));
  expect_close(values(pn::jacrev(pn::grad(summed(theirs)))(point)),
               values(pn::jacrev(pn::grad(summed(ours)))(point)));
  EXPECT_THROW(tangent(pn::grad(summed(theirs))), pn::CallbackError);  // it wants a third one
}

/// Its derivative writes to the cotangent, or to what it has kept of x.
template <int argument>
struct Writes : Function<Writes<argument>> {
  static Tensor forward(AutogradContext* context, Tensor x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list ct) {
    if constexpr (argument == 0)
      context->get_saved_variables()[0].mul_(2);
    else
      ct[0].mul_(2);
    return {ct[0].clone()};
  }
};

TEST(TorchForeign, DerivativesThatWriteToTheirOperandsAreRefused) {
  const auto expect_refused = [](const pn::torch::Function& f, std::size_t kept) {
    const auto g = pn::jit([=](pn::Tensor x, pn::Tensor ct) {
      const auto call = [=](pn::Tensor v) {
        return pn::torch::call({.kept = kept}, v.type(), f, v);
      };
      return std::get<0>(pn::vjp(call, x).second(ct));
    });
    const pn::Tensor x = pn::tensor<float>({1, 2});
    try {
      g(x, x + 1.0f).block_until_ready();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const pn::CallbackError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("has written to operand 0"), std::string::npos) << text;
    }
  };
  for (const std::size_t kept : {std::size_t{256}, std::size_t{0}}) {
    expect_refused([](Tensor t) { return Writes<0>::apply(t); }, kept);
    expect_refused([](Tensor t) { return Writes<1>::apply(t); }, kept);
  }
}

}  // namespace
