// Whose line an error names: of first weights, optimizers and schedules.
#include <postern/optimize.h>

#include "core/places_test.h"

namespace postern {
namespace {

using namespace places_test;

TEST(Places, OfWeightsAndOptimizers) {
  const Tensor x = tensor<float>({1, 2}), key = random::key(0);
  const std::vector<Tensor> list{x};
  const auto joins = [] { return optimize::Schedule(1); };
  const auto adam = optimize::adam({.rate = 0.1});
  const auto state = adam.init(x);
  const Type f32x22{DType::f32, {2, 2}};
  namespace i = initialize;
  namespace o = optimize;
  expect_own_lines({WRONG(i::uniform(x, f32x2)),
                    WRONG(i::normal(x, f32x2)),
                    WRONG(i::truncated_normal(x, f32x2)),
                    WRONG(i::glorot_uniform(key, f32x2)),
                    WRONG(i::glorot_normal(key, f32x2)),
                    WRONG(i::he_uniform(x, f32x22)),
                    WRONG(i::he_normal(x, f32x22)),
                    WRONG(i::lecun_uniform(key, f32x22, {.in = 2})),
                    WRONG(i::lecun_normal(key, f32x2)),
                    WRONG(i::orthogonal(key, f32x2)),
                    WRONG(map_leaves(maximum, x, list)),
                    WRONG(adam.init(tensor<std::complex<float>>({{1, 2}}))),
                    WRONG(adam.update(none, state, x)),
                    WRONG(adam.update(x, state, Tensor(1.0f))),
                    WRONG(o::apply(x, tensor<float>({1, 2, 3}))),
                    WRONG(o::global_norm(none)),
                    WRONG(o::clip_by_global_norm(-1)),
                    WRONG(o::clip_by_global_norm(x, -1)),
                    WRONG(o::linear(1, 0, 0)),
                    WRONG(o::cosine_decay(1, 0)),
                    WRONG(o::exponential_decay(1, 0, 0.5)),
                    WRONG(o::join({joins()}, {1})),
                    WRONG(o::warmup_cosine_decay({.steps = 0}))});
}

}  // namespace
}  // namespace postern
