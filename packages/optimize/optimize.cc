// Optimizers: what becomes of gradients, link by link. Formulas and their order are optax's.
#include <postern/compare.h>
#include <postern/optimize.h>

#include <limits>
#include <numbers>

#include "spi.h"

namespace postern::detail {
using namespace internal;

using Tensors = std::vector<Tensor>;

struct OptimizerRules {
  /// What a link is given of a step.
  struct Step {
    Tensor count;  // of updates so far
    const Tensors& parameters;
  };
  /// Changes the updates, and as many moments as it keeps of all leaves.
  struct Link {
    std::size_t moments;
    std::function<void(const Step& step, Tensors& updates, Tensors* moments)> apply;
  };
  std::vector<Link> links;
};

}  // namespace postern::detail

namespace postern::optimize {
using namespace internal;

namespace {

using detail::Tensors;
using Step = detail::OptimizerRules::Step;
using Link = detail::OptimizerRules::Link;

bool moves(const Tensor& leaf) { return is_float(leaf.dtype()); }

/// Short floats are added and divided in f32.
DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Calls f(i, dtype) for the leaves that move, with their parameters' dtypes.
template <class F>
void for_moving(const Step& step, F&& f) {
  for (std::size_t i = 0; i < step.parameters.size(); ++i)
    if (moves(step.parameters[i])) f(i, step.parameters[i].dtype());
}

/// Returns the mean that fades by `decay`, with `next` in it.
Tensor faded(double decay, const Tensor& mean, const Tensor& next) {
  return convert((1 - decay) * next + decay * mean, mean.dtype());
}

/// Returns the mean after `count` steps without its bias to the zero that it began with.
Tensor unbiased(double decay, const Tensor& mean, const Tensor& count, DType dtype) {
  const Tensor power = pow(convert(Operand(decay), wide(dtype)), convert(count, wide(dtype)));
  return mean / convert(1 - power, dtype);
}

Tensor next_of(const Tensor& count) {  // stops at the largest s32, as optax's
  return minimum(count, std::numeric_limits<std::int32_t>::max() - 1) + 1;
}

Link scaled_by_rate(const Schedule& rate) {
  return {0, [rate](const Step& step, Tensors& updates, Tensors*) {
            const Tensor now = rate(step.count);
            check(now.rank() == 0, "optimize: the rate must be a scalar, got {}",
                  to_string(now.type()));
            for_moving(step, [&](std::size_t i, DType dtype) {
              updates[i] = -convert(now, dtype) * updates[i];  // it may be unsigned
            });
          }};
}

/// Makes momentum: updates become their trace, a sum that fades; with Nesterov's look ahead, the
/// one that the trace would be after the same update again.
Link traced(double decay, bool nesterov) {
  return {1, [decay, nesterov](const Step& step, Tensors& updates, Tensors* moments) {
            for_moving(step, [&](std::size_t i, DType dtype) {
              Tensor& trace = moments[0][i];
              trace = convert(updates[i] + decay * trace, dtype);
              Tensor ahead = trace;
              if (nesterov) ahead = updates[i] + decay * trace;
              updates[i] = ahead;
            });
          }};
}

Link scaled_by_adam(double b1, double b2, double epsilon) {
  return {2, [b1, b2, epsilon](const Step& step, Tensors& updates, Tensors* moments) {
            const Tensor count = next_of(step.count);
            for_moving(step, [&](std::size_t i, DType dtype) {
              Tensor &mean = moments[0][i], &square_mean = moments[1][i];
              mean = faded(b1, mean, updates[i]);
              square_mean = faded(b2, square_mean, square(updates[i]));
              updates[i] = unbiased(b1, mean, count, dtype) /
                           (sqrt(unbiased(b2, square_mean, count, dtype)) + epsilon);
            });
          }};
}

/// Makes lion's: the signs of a mean that fades by b1, while the one that is kept fades by b2.
Link signs_of_mean(double b1, double b2) {
  return {1, [b1, b2](const Step& step, Tensors& updates, Tensors* moments) {
            for_moving(step, [&](std::size_t i, DType) {
              Tensor& mean = moments[0][i];
              const Tensor gradient = updates[i];
              updates[i] = sign(faded(b1, mean, gradient));
              mean = faded(b2, mean, gradient);
            });
          }};
}

Link decayed(double decay, const std::function<bool(const Type&)>& decays) {
  return {0, [decay, decays](const Step& step, Tensors& updates, Tensors*) {
            for_moving(step, [&](std::size_t i, DType) {
              const Tensor& parameter = step.parameters[i];
              if (!decays || decays(parameter.type())) updates[i] = updates[i] + decay * parameter;
            });
          }};
}

void require_real(const char* what, const Tensors& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i)
    check(!is_complex(leaves[i].dtype()), "optimize: {} must be real, leaf {} of {} is {}", what, i,
          leaves.size(), to_string(leaves[i].type()));
}

/// Refuses what does not go, leaf by leaf, with the parameters.
void require_like(const Tensors& parameters, const char* what, const Tensors& leaves) {
  require_real("parameters", parameters);
  require_real(what, leaves);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    check(leaves[i].dims() == parameters[i].dims(),
          "optimize: leaf {} of {} of the parameters is {}, of {} {}", i, leaves.size(),
          to_string(parameters[i].type()), what, to_string(leaves[i].type()));
}

/// Returns the norm of all floats together; squares of short ones are added in f32.
Tensor norm_of(const Tensors& leaves) {
  require_real("leaves", leaves);
  Tensor squares;
  for (const Tensor& leaf : leaves) {
    if (!moves(leaf)) continue;
    const Tensor own = sum(square(convert(leaf, wide(leaf.dtype()))));
    squares = squares.has_value() ? squares + own : own;
  }
  if (!squares.has_value()) return Tensor(0.0f);
  return sqrt(squares);
}

void clip_to(double most, Tensors& leaves) {
  const Tensor norm = norm_of(leaves);
  const Tensor is_within = norm < most;
  for (Tensor& leaf : leaves) {
    if (!moves(leaf)) continue;
    const DType dtype = wide(leaf.dtype());  // f16 may not hold the norm
    const Tensor clipped = convert(leaf, dtype) / convert(norm, dtype) * most;
    leaf = where(is_within, leaf, convert(clipped, leaf.dtype()));
  }
}

void require_positive(double most) {
  check(most > 0, "clip_by_global_norm: the norm must be positive, got {}", most);
}

Optimizer made_of(std::vector<Link> links) {
  return Optimizer(
      std::make_shared<const detail::OptimizerRules>(detail::OptimizerRules{std::move(links)}));
}
}  // namespace

std::size_t Optimizer::moments() const {
  std::size_t count = 0;
  for (const Link& link : rules_->links) count += link.moments;
  return count;
}

std::vector<Tensor> Optimizer::init_leaves(const Tensors& parameters, const Place& place) const {
  PlaceScope at(place);
  require_real("parameters", parameters);
  Tensors state{Tensor(std::int32_t{0})};
  for (std::size_t i = 0; i < moments(); ++i)
    for (const Tensor& p : parameters) state.push_back(zeros_like(p));
  return state;
}

std::vector<Tensor> Optimizer::update_leaves(const Tensors& gradients, const Tensors& state,
                                             const Tensors& parameters, const Place& place) const {
  PlaceScope at(place);
  const std::size_t leaves = parameters.size();
  require_like(parameters, "the gradient", gradients);
  check(state.size() == 1 + moments() * leaves,
        "optimize: the state has {} leaves, required are {}: it is of another optimizer, or of "
        "other parameters",
        state.size(), 1 + moments() * leaves);
  // The state is the count of updates, then each moment of all leaves.
  const Tensor& count = state[0];
  std::vector<Tensors> all_moments;
  for (std::size_t i = 0; i < moments(); ++i) {
    const auto from = state.begin() + static_cast<std::ptrdiff_t>(1 + i * leaves);
    all_moments.emplace_back(from, from + static_cast<std::ptrdiff_t>(leaves));
    require_like(parameters, "the state", all_moments.back());
  }
  Tensors updates = gradients;
  Tensors* of_link = all_moments.data();
  for (const Link& link : rules_->links) {
    link.apply({count, parameters}, updates, of_link);
    of_link += link.moments;
  }
  updates.push_back(next_of(count));
  for (const Tensors& moment : all_moments)
    updates.insert(updates.end(), moment.begin(), moment.end());
  return updates;
}

Optimizer sgd(const SgdOptions& o) { return made_of({scaled_by_rate(o.rate)}); }
Optimizer momentum(const MomentumOptions& o) {
  return made_of({traced(o.decay, o.nesterov), scaled_by_rate(o.rate)});
}
Optimizer adam(const AdamOptions& o) {
  return made_of({scaled_by_adam(o.b1, o.b2, o.epsilon), scaled_by_rate(o.rate)});
}
Optimizer adamw(const AdamWOptions& o) {
  return made_of(
      {scaled_by_adam(o.b1, o.b2, o.epsilon), decayed(o.decay, o.decays), scaled_by_rate(o.rate)});
}
Optimizer lion(const LionOptions& o) {
  return made_of({signs_of_mean(o.b1, o.b2), decayed(o.decay, o.decays), scaled_by_rate(o.rate)});
}

Optimizer chain(const std::vector<Optimizer>& optimizers) {
  std::vector<Link> links;
  for (const Optimizer& each : optimizers)
    links.insert(links.end(), each.rules().links.begin(), each.rules().links.end());
  return made_of(std::move(links));
}

Optimizer clip_by_global_norm(double most, Place place) {
  PlaceScope at(place);
  require_positive(most);
  return made_of(
      {{0, [most](const Step&, Tensors& updates, Tensors*) { clip_to(most, updates); }}});
}

// --- schedules ---

namespace {
void require_steps(const char* op, std::int64_t steps) {
  check(steps > 0, "{}: the number of steps must be positive, got {}", op, steps);
}
/// Returns how much of `steps` is over, from 0 to 1.
Tensor part_of(const Tensor& step, std::int64_t steps) {
  return clip(convert<float>(step), 0, steps) / static_cast<double>(steps);
}
}  // namespace

Schedule linear(double from, double to, std::int64_t steps, Place place) {
  PlaceScope at(place);
  require_steps("linear", steps);
  return [=](Tensor step) { return (from - to) * (1 - part_of(step, steps)) + to; };
}

Schedule cosine_decay(double from, std::int64_t steps, double end, Place place) {
  PlaceScope at(place);
  require_steps("cosine_decay", steps);
  return [=](Tensor step) {
    const Tensor fallen = 0.5 * (1 + cos(std::numbers::pi * part_of(step, steps)));
    return from * ((1 - end) * fallen + end);
  };
}

Schedule exponential_decay(double from, std::int64_t steps, double factor, bool staircase,
                           Place place) {
  PlaceScope at(place);
  require_steps("exponential_decay", steps);
  return [=](Tensor step) {
    Tensor times = convert<float>(step) / static_cast<double>(steps);
    if (staircase) times = floor(times);
    return from * pow(factor, times);
  };
}

Schedule join(const std::vector<Schedule>& schedules, const std::vector<std::int64_t>& at,
              Place place) {
  PlaceScope scope(place);
  check(!schedules.empty() && at.size() + 1 == schedules.size(),
        "join: between {} schedules there are {} changes, got {}", schedules.size(),
        schedules.size() - 1, at.size());
  return [=](Tensor step) {
    Tensor now = schedules[0](step);
    for (std::size_t i = 0; i < at.size(); ++i)
      now = where(step < at[i], now, schedules[i + 1](step - at[i]));
    return now;
  };
}

Schedule warmup_cosine_decay(const WarmupCosine& o, Place place) {
  PlaceScope at(place);
  check(o.warmup > 0 && o.steps > o.warmup,
        "warmup_cosine_decay: steps must be more than warmup, and that positive, got {} and {}",
        o.steps, o.warmup);
  const Schedule rise = linear(o.from, o.peak, o.warmup);
  return join({rise, cosine_decay(o.peak, o.steps - o.warmup, o.peak == 0 ? 0 : o.to / o.peak)},
              {o.warmup});
}

}  // namespace postern::optimize

namespace postern::detail {
using namespace internal;

Tensors updated(const Tensors& parameters, const Tensors& updates, const Place& place) {
  PlaceScope at(place);
  optimize::require_like(parameters, "the update", updates);
  Tensors out = parameters;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (optimize::moves(out[i])) out[i] = convert(out[i] + updates[i], out[i].dtype());
  return out;
}

Tensor global_norm(const Tensors& leaves, const Place& place) {
  PlaceScope at(place);
  Tensors floats;
  for (const Tensor& leaf : leaves)
    floats.push_back(is_integer(leaf.dtype()) ? convert(leaf, DType::f32) : leaf);
  return optimize::norm_of(floats);
}

Tensors clipped(const Tensors& leaves, double most, const Place& place) {
  PlaceScope at(place);
  optimize::require_positive(most);
  Tensors out = leaves;
  optimize::clip_to(most, out);
  return out;
}

}  // namespace postern::detail
