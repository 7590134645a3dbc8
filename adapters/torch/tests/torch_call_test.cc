// Torch functions in programs: memory, types, results, errors, batches, re-entry.
#include <gtest/gtest.h>
#include <postern/postern.h>
#include <postern/torch.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

namespace pn = postern;

namespace {

using at::Tensor;

/// The text of what `act` throws.
template <class E, class Act>
std::string text_of(Act act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing of that type was thrown";
  return {};
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

pn::Tensor run1(const pn::Type& out, const pn::torch::Function& f, const pn::Tensor& x) {
  return pn::jit([&](pn::Tensor v) { return pn::torch::call(out, f, v); })(x);
}

TEST(TorchCall, Computes) {
  const auto f = pn::jit([](pn::Tensor x, pn::Tensor y) {
    return pn::torch::call(
               x.type(), [](Tensor a, Tensor b) { return at::atan2(a, b); }, x, y) +
           y;
  });
  const auto y = f(pn::tensor<float>({1, 2}), pn::tensor<float>({3, 4})).to_vector<float>();
  EXPECT_FLOAT_EQ(y[0], std::atan2(1.f, 3.f) + 3);
  EXPECT_FLOAT_EQ(y[1], std::atan2(2.f, 4.f) + 4);
}

TEST(TorchCall, RunsAtOnceOutsideOfATrace) {
  const pn::Tensor x = pn::tensor<float>({4, 9});
  EXPECT_EQ(pn::torch::call(
                x.type(), [](Tensor a) { return at::sqrt(a); }, x)
                .to_vector<float>(),
            (std::vector<float>{2, 3}));
}

TEST(TorchCall, SeesTheProgramsMemory) {
  if (!pn::plugin_info().calls_back)
    GTEST_SKIP() << "TorchCall.SeesTheProgramsMemory needs a plug-in that calls functions: stages "
                    "make tensors of what a call sees";
  const void* ours = nullptr;
  const void* theirs = nullptr;
  bool owned = true;
  pn::jit([&](pn::Tensor x) {
    const pn::Tensor y = x * 2.0f;
    const pn::Tensor a = pn::call(
        pn::type<float>(),
        [&](pn::View<const float> v) {
          ours = v.data();
          return v[0];
        },
        y);
    const pn::Tensor b = pn::torch::call(
        pn::type<float>(),
        [&](const Tensor& t) {
          theirs = t.data_ptr();
          owned = t.storage().allocator() != nullptr;
          return t.sum();
        },
        y);
    return a + b;
  })(pn::zeros(pn::type<float>({1000})))
      .item<float>();
  EXPECT_EQ(ours, theirs);
  EXPECT_FALSE(owned);
}

TEST(TorchCall, HasAllDtypes) {
  using D = pn::DType;
  for (const D d : {D::pred, D::s8, D::s16, D::s32, D::s64, D::u8, D::f16, D::bf16, D::f32, D::f64,
                    D::c64, D::c128}) {
    const pn::Tensor x = pn::convert(pn::tensor<int>({0, 1, 1}), d);
    const pn::Tensor y = run1(
        x.type(), [](Tensor t) { return t.flip(0); }, x);
    EXPECT_EQ(y.type(), x.type());
    EXPECT_EQ(pn::convert(pn::real(y), D::s32).to_vector<int>(), (std::vector<int>{1, 1, 0}))
        << pn::to_string(d);
  }
  for (const D d : {D::u16, D::u32, D::u64, D::s4, D::f8e5m2}) {
    const pn::Tensor x = pn::convert(pn::tensor<int>({0, 1}), d);
    const std::string text = text_of<pn::TypeError>([&] {
      run1(
          x.type(), [](Tensor t) { return t; }, x);
    });
    EXPECT_TRUE(has(text, "torch has no tensors of " + std::string(pn::to_string(d)))) << text;
  }
}

TEST(TorchCall, TakesResultsThatLieApart) {
  const pn::Tensor x = pn::tensor<float>({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(run1(
                pn::type<float>({3, 2}), [](Tensor t) { return t.t(); }, x)
                .to_vector<float>(),
            (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(run1(
                pn::type<float>({2, 2}),
                [](Tensor t) {
                  return t.select(1, 0).expand({2, 2});
                },
                x)
                .to_vector<float>(),
            (std::vector<float>{1, 4, 1, 4}));
  const std::complex<float> i{0, 1};
  EXPECT_EQ(run1(
                pn::type<std::complex<float>>(), [](Tensor t) { return t.conj(); }, pn::Tensor(i))
                .item<std::complex<float>>(),
            -i);
  EXPECT_EQ(
      run1(
          pn::type<float>({0}), [](Tensor t) { return t * 2; }, pn::zeros(pn::type<float>({0})))
          .size(),
      0);
}

TEST(TorchCall, TakesFunctionsOfManyForms) {
  const pn::Tensor x = pn::tensor<float>({1, 2});
  const std::pair out{x.type(), pn::type<std::int64_t>({2})};
  const auto both = [](Tensor t) { return at::sort(t, 0, true); };
  auto [v, i] = pn::jit([&](pn::Tensor a) { return pn::torch::call(out, both, a); })(x);
  EXPECT_EQ(v.to_vector<float>(), (std::vector<float>{2, 1}));
  EXPECT_EQ(i.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0}));
  const auto list = [](const std::vector<Tensor>& all) { return at::cat(all); };
  EXPECT_EQ(pn::torch::call(pn::type<float>({6}), list, x, x, x).size(), 6);
  const auto generic = [](const auto& first, const auto&... all) {
    return std::vector<Tensor>{(first + ... + all)};
  };
  EXPECT_EQ(pn::torch::call(std::vector{x.type()}, generic, x, x, x)[0].to_vector<float>(),
            (std::vector<float>{3, 6}));
  const auto fill = [](Tensor a, Tensor to) { at::exp_out(to, a); };
  EXPECT_FLOAT_EQ(pn::torch::call(x.type(), fill, x).to_vector<float>()[0], std::exp(1.0f));
  EXPECT_EQ(pn::torch::call(pn::type<float>({2}), [] { return at::ones({2}); }).to_vector<float>(),
            (std::vector<float>{1, 1}));
}

TEST(TorchCall, TakesModules) {
  torch::manual_seed(1);
  const pn::Tensor x = pn::tensor<float>({{1, 2, 3}, {4, 5, 6}});
  const Tensor t = at::tensor({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}).view({2, 3});
  torch::nn::Linear linear(3, 2);
  torch::nn::Sequential sequential(torch::nn::Linear(3, 4), torch::nn::Tanh(),
                                   torch::nn::Linear(4, 2));
  torch::nn::AnyModule any(linear);
  torch::jit::Module script("m");
  script.register_parameter("w", linear->weight, false);
  script.define("def forward(self, x):\n  return torch.matmul(x, self.w.t())\n");
  const pn::Type out = pn::type<float>({2, 2});
  const auto same = [](const pn::Tensor& a, const Tensor& b) {
    std::vector<float> v = a.to_vector<float>();
    return at::allclose(at::from_blob(v.data(), b.sizes()), b);
  };
  EXPECT_TRUE(same(run1(out, linear, x), linear(t)));
  EXPECT_TRUE(same(run1(out, linear.ptr(), x), linear(t)));
  EXPECT_TRUE(same(run1(out, sequential, x), sequential->forward(t)));
  EXPECT_TRUE(same(run1(out, any, x), linear(t)));
  EXPECT_TRUE(same(run1(out, script, x), at::matmul(t, linear->weight.t())));
}

TEST(TorchCall, FailsWithTorchsText) {
  const pn::Tensor x = pn::tensor<float>({1, 2});
  const auto f = pn::jit([](pn::Tensor v) {
    return pn::torch::call(
        {.name = "product"}, v.type(), [](Tensor t) { return at::mm(t, t); }, v);
  });
  for (int i = 0; i < 2; ++i) {
    try {
      f(x).block_until_ready();
      FAIL();
    } catch (const pn::CallbackError& error) {
      EXPECT_EQ(error.code(), pn::ErrorCode::threw);
      EXPECT_TRUE(has(error.what(), "call 'product' at torch_call_test.cc:")) << error.what();
      EXPECT_TRUE(has(error.what(), "self must be a matrix")) << error.what();
      EXPECT_FALSE(has(error.what(), "frame #")) << error.what();
      EXPECT_THROW(std::rethrow_exception(error.cause()), c10::Error);
    }
  }
  const auto index = [](Tensor t) { return t[7]; };
  try {
    run1(pn::type<float>(), index, x).block_until_ready();
    FAIL();
  } catch (const pn::CallbackError& error) {
    EXPECT_THROW(std::rethrow_exception(error.cause()), c10::IndexError);
  }
}

TEST(TorchCall, ChecksResults) {
  const pn::Tensor x = pn::tensor<float>({1, 2});
  const auto fails = [&](const pn::torch::Function& f, const std::string& part) {
    try {
      run1(x.type(), f, x).block_until_ready();
      ADD_FAILURE() << part;
    } catch (const pn::CallbackError& error) {
      EXPECT_EQ(error.code(), pn::ErrorCode::bad_result);
      EXPECT_TRUE(has(error.what(), part)) << error.what();
    }
  };
  fails([](Tensor t) { return t.to(at::kDouble); }, "Double[2] as result 0, declared is f32[2]");
  fails([](Tensor t) { return t.unsqueeze(0); }, "Float[1,2] as result 0, declared is f32[2]");
  fails([](Tensor t) { return std::pair(t, t); }, "2 tensors, declared are 1");
  fails([](Tensor) { return Tensor(); }, "an undefined tensor as result 0");
}

TEST(TorchCall, ChecksOperands) {
  const pn::Tensor x = pn::tensor<float>({1, 2});
  const std::string text = text_of<pn::TypeError>([&] {
    pn::torch::call(
        x.type(), [](Tensor a, Tensor b) { return a + b; }, x);
  });
  EXPECT_TRUE(has(text, "takes 2 tensors, got 1 (at torch_call_test.cc:")) << text;
}

TEST(TorchCall, RefusesWritesToOperands) {
  const pn::Tensor x = pn::tensor<float>({1, 2});
  const std::string text = text_of<pn::CallbackError>([&] {
    run1(
        x.type(), [](Tensor t) { return t.clone().add_(t.mul_(2)); }, x)
        .block_until_ready();
  });
  EXPECT_TRUE(has(text, "has written to operand 0")) << text;
}

TEST(TorchCall, GivesWhatIsKeptMemoryOfItsOwn) {
  std::vector<Tensor> kept;
  const auto f = pn::jit([&](pn::Tensor x) {
    return pn::torch::call(
        {.effect = pn::Effect::unordered}, x.type(),
        [&](Tensor t) {
          kept.push_back(t.slice(0, 1));
          return t * 1;
        },
        x * 2.0f);
  });
  for (int i = 0; i < 3; ++i)
    f(pn::full(pn::type<float>({1000}), static_cast<float>(i))).block_until_ready();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(kept[static_cast<std::size_t>(i)][7].item<float>(), static_cast<float>(2 * i));
}

TEST(TorchCall, GivesWhatIsKeptMemoryOfItsOwnAlsoWhereItFails) {
  Tensor kept;
  const void* programs = nullptr;
  bool throws = true;
  const auto f = [&](pn::Tensor x) {
    return pn::sum(pn::torch::call(
        x.type(),
        [&](Tensor t) {
          programs = t.data_ptr();
          kept = t.detach();
          if (throws) throw std::runtime_error("no");
          return t.unsqueeze(0);  // a bad result
        },
        x * 2.0f));
  };
  const auto check = [&](auto g) {
    for (const bool each : {true, false}) {
      throws = each;
      EXPECT_THROW(g(pn::ones(pn::type<float>({1000}))).block_until_ready(), pn::CallbackError);
      EXPECT_NE(kept.data_ptr(), programs);
      EXPECT_EQ(kept[7].item<float>(), 2);
    }
  };
  check(pn::jit(f));
  check(pn::jit(pn::grad(f)));
}

TEST(TorchCall, RunsInLoopsAndBranches) {
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::fori_loop(
        0, 5,
        [](pn::Tensor, pn::Tensor y) {
          return pn::torch::call(
              y.type(), [](Tensor t) { return t + 1; }, y);
        },
        x);
  });
  EXPECT_EQ(f(pn::Tensor(0.0f)).item<float>(), 5);
}

TEST(TorchCall, ReEntersBothWays) {
  const auto inner = pn::jit([](pn::Tensor x) {
    return pn::torch::call(
               x.type(), [](Tensor t) { return t * 3; }, x) +
           1.0f;
  });
  const auto program = pn::torch::module(inner);
  const auto outer = pn::jit([&](pn::Tensor x) {
    return pn::torch::call(
        x.type(), [&](Tensor t) { return program(t * 2) + 10; }, x);
  });
  EXPECT_EQ(outer(pn::tensor<float>({1, 2})).to_vector<float>(), (std::vector<float>{17, 23}));
  const auto g = pn::grad([&](pn::Tensor x) { return pn::sum(outer(x) * x); });
  EXPECT_EQ(g(pn::tensor<float>({1, 2})).to_vector<float>(), (std::vector<float>{23, 35}));
}

TEST(TorchCall, KeepsATimeLimit) {
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::torch::call(
        {.timeout = std::chrono::milliseconds(30)}, x.type(),
        [](Tensor t) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2000));
          return t;
        },
        x);
  });
  EXPECT_THROW(f(pn::Tensor(1.0f)).block_until_ready(), pn::TimeoutError);
}

// --- batches

struct Batching {
  const char* name;
  std::optional<pn::VmapMethod> method;
};
class TorchCallVmap : public testing::TestWithParam<Batching> {};
INSTANTIATE_TEST_SUITE_P(All, TorchCallVmap,
                         testing::Values(Batching{"torch", {}},
                                         Batching{"sequential", pn::VmapMethod::sequential},
                                         Batching{"parallel", pn::VmapMethod::parallel},
                                         Batching{"expand", pn::VmapMethod::expand_dims},
                                         Batching{"broadcast", pn::VmapMethod::broadcast_all}),
                         [](const auto& each) { return each.param.name; });

TEST_P(TorchCallVmap, EqualsALoop) {
  pn::torch::Options options;
  options.vmap = GetParam().method;
  // Right for any axes in front.
  const auto f = [&](pn::Tensor x, pn::Tensor w) {
    return pn::torch::call(
        options, pn::type<float>(), [](Tensor a, Tensor b) { return (at::sin(a) * b).sum(-1); }, x,
        w);
  };
  const auto ours = [](pn::Tensor x, pn::Tensor w) { return pn::sum(pn::sin(x) * w); };
  const pn::Tensor x = pn::tensor<float>({{1, 2, 3}, {4, 5, 6}}), w = pn::tensor<float>({1, 2, 3});
  const auto close = [](const pn::Tensor& a, const pn::Tensor& b) {
    ASSERT_EQ(a.type(), b.type());
    const auto u = a.to_vector<float>(), v = b.to_vector<float>();
    for (std::size_t i = 0; i < u.size(); ++i) EXPECT_NEAR(u[i], v[i], 1e-5);
  };
  const pn::VmapOptions first{.in_axes = {0, pn::unmapped}};
  close(pn::jit(pn::vmap(f, first))(x, w), pn::vmap(ours, first)(x, w));
  const auto g = pn::grad<0, 1>(f);
  const auto h = pn::grad<0, 1>(ours);
  const auto [a, b] = pn::jit(pn::vmap(g, first))(x, w);
  const auto [c, d] = pn::vmap(h, first)(x, w);
  close(a, c);
  close(b, d);
  // Two levels, each of one operand.
  const auto twice = [&](auto fn) {
    return pn::vmap(pn::vmap(fn, {.in_axes = {pn::unmapped, 0}}), {.in_axes = {0, pn::unmapped}});
  };
  const pn::Tensor ws = pn::tensor<float>({{1, 2, 3}, {3, 2, 1}, {0, 1, 0}});
  close(pn::jit(twice(f))(x, ws), twice(ours)(x, ws));
  const auto [e, k] = pn::jit(twice(g))(x, ws);
  const auto [l, m] = twice(h)(x, ws);
  close(e, l);
  close(k, m);
}

TEST(TorchCallBatches, TakeOneCallOfTorchsVmap) {
  int calls = 0;
  const auto f = [&](pn::Tensor x) {
    return pn::torch::call(
        pn::type<float>(),
        [&](Tensor t) {
          ++calls;
          return t.norm();
        },
        x);
  };
  const pn::Tensor x = pn::ones(pn::type<float>({5, 4}));
  EXPECT_EQ(pn::jit(pn::vmap(f))(x).to_vector<float>(), std::vector<float>(5, 2.0f));
  EXPECT_EQ(calls, 1);
}

TEST(TorchCallBatches, OfCallsWithoutResultsAreLoops) {
  std::vector<std::int64_t> ranks;
  pn::jit(pn::vmap([&](pn::Tensor x) {
    pn::torch::call(
        {.effect = pn::Effect::unordered}, std::vector<pn::Type>{},
        [&](Tensor t) {
          ranks.push_back(t.dim());
          return std::vector<Tensor>{};
        },
        x);
    return x;
  }))(pn::ones(pn::type<float>({3, 4})))
      .block_until_ready();
  pn::barrier();
  EXPECT_EQ(ranks, (std::vector<std::int64_t>{1, 1, 1}));
}

TEST(TorchCallBatches, FallBackToALoopWhereTorchHasNoRuleAtOnce) {
  const auto f = [](pn::Tensor x) {
    return pn::torch::call(
        pn::type<float>({2}), [](Tensor t) { return std::get<0>(at::linalg_eigh(t)); }, x);
  };
  const pn::Tensor x = pn::tensor<float>({{{2, 0}, {0, 1}}, {{3, 0}, {0, 4}}});
  EXPECT_EQ(pn::jit(pn::vmap(f))(x).to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
}

TEST(TorchCallBatches, AreLoopsInsideOfAnother) {
  const auto inner = pn::jit(pn::vmap([](pn::Tensor x) {
    return pn::torch::call(
        x.type(), [](Tensor t) { return t * 2; }, x);
  }));
  const auto outer = [&](pn::Tensor x) {
    return pn::torch::call(
        x.type(),
        [&](Tensor t) {
          inner(pn::tensor<float>({1, 2})).block_until_ready();
          return t + 1;
        },
        x);
  };
  EXPECT_EQ(pn::jit(pn::vmap(outer))(pn::tensor<float>({1, 2})).to_vector<float>(),
            (std::vector<float>{2, 3}));
}

TEST(TorchCallBatches, RunAtOnceOnManyThreads) {
  const auto f = pn::jit(pn::vmap([](pn::Tensor x) {
    return pn::torch::call(
        x.type(), [](Tensor t) { return at::softmax(t, 0); }, x);
  }));
  const pn::Tensor x = pn::ones(pn::type<float>({8, 4}));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n)
        if (f(x).to_vector<float>() != std::vector<float>(32, 0.25f)) ++wrong;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(TorchCall, UsesAsManyThreadsAsSet) {
  const auto count = [] {
    return run1(
               pn::type<int>(),
               [](Tensor) { return at::scalar_tensor(at::get_num_threads(), at::kInt); },
               pn::Tensor(1.0f))
        .item<int>();
  };
  const int before = at::get_num_threads();
  pn::torch::set_threads(3);
  EXPECT_EQ(count(), 3);
  pn::torch::set_threads(1);
  EXPECT_EQ(count(), 1);
  EXPECT_EQ(at::get_num_threads(), before);
  pn::torch::set_threads(0);
  EXPECT_EQ(count(), before);
  EXPECT_THROW(pn::torch::set_threads(-1), pn::TypeError);
}

}  // namespace
