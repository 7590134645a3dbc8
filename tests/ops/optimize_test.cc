// Optimizers, schedules, first weights and dropout beside what optax and JAX give
// (scripts/golden_optimize).
#include <postern/optimize.h>

#include <complex>
#include <fstream>
#include <map>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using test::expect_error, test::has;
using Doubles = std::vector<double>;

const Doubles& golden(const std::string& name) {
  static const auto all = [] {
    std::map<std::string, Doubles> out;
    std::ifstream file(std::string(POSTERN_TEST_DATA) + "/optimize.txt");
    for (std::string line; std::getline(file, line);) {
      const std::size_t end = line.find(';');
      std::istringstream numbers(line.substr(end + 1));
      for (double x; numbers >> x;) out[line.substr(0, end)].push_back(x);
    }
    return out;
  }();
  return all.at(name);
}

void expect_golden(const std::string& name, const std::vector<float>& got, double within = 2e-6) {
  const Doubles& wanted = golden(name);
  ASSERT_EQ(got.size(), wanted.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], within * std::max(1.0, std::abs(wanted[i])))
        << name << " at " << i;
}

struct Weights {
  Tensor b, w;
};
Weights first_weights() {
  return {tensor<float>({0.5, -0.25}), tensor<float>({{1, -2, 3}, {0.1f, 0, -0.1f}})};
}
Tensor loss(Weights p) { return sum(sin(p.w) * 3 + p.w * p.w) + sum(exp(p.b)); }

std::vector<float> numbers_of(const Weights& p) {
  std::vector<float> out = p.b.to_vector<float>();
  for (const float x : p.w.to_vector<float>()) out.push_back(x);
  return out;
}

auto step_of(const optimize::Optimizer& optimizer) {
  return jit([optimizer](Weights p, optimize::State<Weights> state) {
    auto [updates, next] = optimizer.update(grad(loss)(p), state, p);
    return std::pair(optimize::apply(p, updates), next);
  });
}

optimize::Schedule warmed() {
  return optimize::warmup_cosine_decay(
      {.from = 0.01, .peak = 0.3, .to = 0.02, .warmup = 2, .steps = 5});
}
bool is_matrix(const Type& type) { return type.rank() > 1; }

TEST(Optimize, StepsAreOptax) {
  using namespace optimize;
  const std::map<std::string, Optimizer> optimizers{
      {"sgd", sgd({.rate = 0.1})},
      {"momentum", momentum({.rate = 0.1, .decay = 0.8})},
      {"nesterov", momentum({.rate = 0.1, .decay = 0.8, .nesterov = true})},
      {"adam", adam({.rate = 0.1})},
      {"adam_options", adam({.rate = 0.1, .b1 = 0.7, .b2 = 0.8, .epsilon = 1e-3})},
      {"adamw", adamw({.rate = 0.1, .decay = 0.3})},
      {"adamw_of_matrices", adamw({.rate = 0.1, .decay = 0.3, .decays = is_matrix})},
      {"lion", lion({.rate = 0.1, .decay = 0.3})},
      {"scheduled", adam({.rate = warmed()})},
      {"clipped", chain({optimize::clip_by_global_norm(1.5), sgd({.rate = 0.5})})},
      {"not_clipped", chain({optimize::clip_by_global_norm(1e3), sgd({.rate = 0.1})})}};
  for (const auto& [name, optimizer] : optimizers) {
    const auto step = step_of(optimizer);
    Weights p = first_weights();
    auto state = optimizer.init(p);
    for (int i = 0; i < 6; ++i) std::tie(p, state) = step(p, state);
    expect_golden(name, numbers_of(p), 1e-5);
    EXPECT_EQ(state.count.item<int>(), 6);
  }
}

TEST(Optimize, SchedulesAreOptax) {
  using namespace optimize;
  const std::map<std::string, Schedule> schedules{{"linear", linear(1, 0.1, 4)},
                                                  {"cosine", cosine_decay(0.5, 4, 0.1)},
                                                  {"exponential", exponential_decay(2, 3, 0.5)},
                                                  {"staircase", exponential_decay(2, 3, 0.5, true)},
                                                  {"warmup", warmed()},
                                                  {"joined", join({0.1, linear(1, 0, 4)}, {3})}};
  for (const auto& [name, schedule] : schedules) {
    const auto all = jit(vmap([schedule = schedule](Tensor step) { return schedule(step); }));
    const Tensor steps = iota({DType::s32, {8}}, 0);
    expect_golden("schedule " + name, convert<float>(all(steps)).to_vector<float>());
  }
}

TEST(Optimize, FirstWeightsAreJax) {
  const Tensor seven = random::key(7);
  const Type matrix = type<float>({2, 3});
  const Type kernel = type<float>({3, 2, 2, 1});
  const auto all = jit([=](Tensor key) {
    using namespace initialize;
    return std::map<std::string, Tensor>{
        {"uniform", uniform(key, matrix, 0.5)},
        {"normal", normal(key, matrix, 0.5)},
        {"truncated_normal", truncated_normal(key, type<float>({4, 3}), 0.5)},
        {"glorot_uniform", glorot_uniform(key, matrix)},
        {"glorot_normal", glorot_normal(key, matrix)},
        {"he_uniform", he_uniform(key, matrix)},
        {"he_normal", he_normal(key, matrix)},
        {"lecun_uniform", lecun_uniform(key, matrix)},
        {"lecun_normal", lecun_normal(key, matrix)},
        {"he_kernel", he_uniform(key, kernel, {.in = 1, .out = 0})},
        {"orthogonal", orthogonal(key, type<float>({3, 3}), 2)},
        {"orthogonal_tall", orthogonal(key, type<float>({2, 2, 3}))},
        {"orthogonal_wide", orthogonal(key, matrix)}};
  });
  for (const auto& [name, weights] : all(seven))
    expect_golden("first " + name, weights.to_vector<float>(), 1e-5);
  expect_golden(
      "truncated",
      random::truncated_normal(seven, type<float>({6}), 0.5f, INFINITY).to_vector<float>());
  expect_golden("dropout", dropout(seven, iota({DType::f32, {8}}, 0) + 1, 0.25).to_vector<float>());
}

TEST(Optimize, NormIsOptax) {
  expect_golden("global_norm", {optimize::global_norm(first_weights()).item<float>()});
  const Weights clipped = optimize::clip_by_global_norm(first_weights(), 2);
  EXPECT_NEAR(optimize::global_norm(clipped).item<float>(), 2, 1e-5);
  // Squares of f16 are beyond it, and their sum is not.
  EXPECT_NEAR(optimize::global_norm(convert(tensor<float>({300, 400}), DType::f16)).item<float>(),
              500, 1);
  EXPECT_EQ(optimize::global_norm(std::vector<Tensor>()).item<float>(), 0);
}

TEST(Optimize, DTypesAndOtherLeavesStay) {
  using Mixed = std::tuple<Tensor, Tensor, Tensor>;
  const Mixed p{tensor<double>({1, 2}), convert(tensor<float>({3}), DType::bf16), Tensor(7)};
  auto square_sum = [](Mixed at) {
    return sum(square(std::get<0>(at))) + convert<double>(sum(std::get<1>(at))) +
           convert<double>(std::get<2>(at));
  };
  for (const auto& optimizer :
       {optimize::adamw({.rate = 0.1}), optimize::lion({.rate = optimize::linear(1, 0, 9)}),
        optimize::momentum({.rate = 0.1})}) {
    const Mixed slopes = grad(square_sum, {.allow_int = true})(p);
    const auto [updates, state] = optimizer.update(slopes, optimizer.init(p), p);
    const Mixed next = optimize::apply(p, updates);
    EXPECT_EQ(std::get<0>(next).dtype(), DType::f64);
    EXPECT_LT(std::get<0>(next).to_vector<double>()[0], 1);
    EXPECT_EQ(std::get<1>(next).dtype(), DType::bf16);
    EXPECT_EQ(std::get<2>(next).item<int>(), 7);
    EXPECT_EQ(detail::structure_of(state), detail::structure_of(optimizer.init(p)));
    for (std::size_t i = 0; i < leaves(state).size(); ++i)
      EXPECT_EQ(leaves(state)[i].type(), leaves(optimizer.init(p))[i].type()) << i;
  }
}

TEST(Optimize, ErrorsNameWhatDiffers) {
  const auto adam = optimize::adam({.rate = 0.1});
  const Weights p = first_weights();
  expect_error<TypeError>(
      [&] {
        adam.update(Weights{p.b, p.b}, adam.init(p), p);
      },
      {"leaf 1 of 2", "f32[2,3]", "f32[2]", "optimize_test.cc:"});
  expect_error<TypeError>([&] { adam.update(p, optimize::sgd({.rate = 1}).init(p), p); },
                          {"1 leaves, required are 5", "another optimizer"});
  using List = std::vector<Tensor>;
  expect_error<TypeError>(
      [&] {
        adam.update(List{p.b}, adam.init(List{p.b, p.w}), List{p.b, p.w});
      },
      {"the gradient has the structure", "optimize_test.cc:"});
  expect_error<TypeError>(
      [&] {
        adam.init(tensor<std::complex<float>>({{1, 2}}));
      },
      {"must be real", "c64[1]"});
  expect_error<TypeError>([] { optimize::clip_by_global_norm(0); }, {"positive, got 0"});
  expect_error<TypeError>([] { optimize::linear(1, 0, 0); }, {"linear", "got 0"});
  expect_error<TypeError>([] { initialize::he_normal(random::key(0), type<float>({3})); },
                          {"he_normal", "rank 2 or more", "f32[3]"});
  expect_error<TypeError>([] { dropout(random::key(0), Tensor(1.0f), 1.5); }, {"0 to 1, got 1.5"});
  expect_error<TypeError>(
      [] {
        cross_entropy(ones(type<float>({2, 3})), tensor<int>({0, 1, 2}));
      },
      {"shape [2]", "s32[3]"});
}

TEST(Optimize, ComplexLeavesAreRefused) {
  using namespace optimize;
  const Tensor x = tensor<std::complex<float>>({{3, 4}}), p = tensor<float>({1});
  const auto adam = optimize::adam({.rate = 0.1});
  expect_error<TypeError>([&] { global_norm(x); }, {"must be real", "c64[1]"});
  expect_error<TypeError>([&] { optimize::clip_by_global_norm(x, 1); }, {"must be real", "c64[1]"});
  expect_error<TypeError>([&] { apply(x, x); }, {"parameters must be real", "c64[1]"});
  expect_error<TypeError>([&] { apply(p, x); }, {"the update must be real", "c64[1]"});
  expect_error<TypeError>([&] { adam.update(x, adam.init(p), p); },
                          {"the gradient must be real", "c64[1]", "optimize_test.cc:"});
}

TEST(Optimize, ShapesThatDifferAreRefused) {
  using namespace optimize;
  const Tensor one = tensor<float>({1}), three = tensor<float>({1, 2, 3});
  const auto adam = optimize::adam({.rate = 0.1});
  expect_error<TypeError>([&] { adam.update(one, adam.init(three), one); },
                          {"f32[1]", "the state f32[3]", "optimize_test.cc:"});
  expect_error<TypeError>([&] { apply(one, three); }, {"f32[1]", "the update f32[3]"});
  expect_error<TypeError>([&] { apply(three, one); }, {"f32[3]", "the update f32[1]"});
}

TEST(Optimize, IntegersCountInNormsAndAreNotClipped) {
  EXPECT_EQ(optimize::global_norm(tensor<int>({3, 4})).item<float>(), 5);
  using Two = std::vector<Tensor>;
  const Two both{tensor<int>({2, 3}), tensor<float>({6})};
  EXPECT_EQ(optimize::global_norm(both).item<float>(), 7);
  const Two clipped = optimize::clip_by_global_norm(both, 3);
  EXPECT_EQ(clipped[0].to_vector<int>(), (std::vector<int>{2, 3}));
  EXPECT_EQ(clipped[1].item<float>(), 3);
}

TEST(Optimize, RatesMayBeUnsignedOrPred) {
  const Tensor p = tensor<float>({2});
  const auto counted = [](Tensor step) { return convert(step + 1, DType::u32); };
  for (const optimize::Schedule& rate :
       {optimize::Schedule(1u), optimize::Schedule(true), optimize::Schedule(counted)}) {
    const auto sgd = optimize::sgd({.rate = rate});
    EXPECT_EQ(sgd.update(p, sgd.init(p), p).first.item<float>(), -2);
  }
}

TEST(Optimize, NothingIsDroppedOrEverything) {
  const Tensor key = random::key(1), x = tensor<float>({1, 2, 3});
  EXPECT_EQ(dropout(key, x, 0).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(dropout(key, x, 1).to_vector<float>(), std::vector<float>(3));
  const auto slope = grad([&](Tensor at) { return sum(dropout(key, at, 1)); })(x);
  EXPECT_EQ(slope.to_vector<float>(), std::vector<float>(3));
}

}  // namespace
}  // namespace postern
