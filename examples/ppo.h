// Proximal policy optimization (Schulman et al., 2017) of a policy for a pool of simulators: to
// act, to estimate advantages and to update are one function of a compiled program.
#pragma once
#include <postern/optimize.h>
#include <postern/pool.h>
#include <postern/postern.h>

#include <utility>
#include <vector>

namespace ppo {

namespace pn = postern;

struct Layer {
  pn::Tensor weights, bias;
};
using Net = std::vector<Layer>;

/// Layers of these widths. `last`: the scale of the last one's weights.
inline Net network(const pn::Tensor& key, const std::vector<std::int64_t>& widths, float last) {
  Net net;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const pn::Tensor weights =
        pn::initialize::lecun_normal(pn::random::fold_in(key, static_cast<std::int32_t>(i)),
                                     pn::type<float>({widths[i], widths[i + 1]}));
    const float scale = i + 2 == widths.size() ? last : 1;
    net.push_back({scale * weights, pn::zeros(pn::type<float>({widths[i + 1]}))});
  }
  return net;
}
inline pn::Tensor forward(const Net& net, pn::Tensor x) {
  for (const Layer& layer : net) {
    x = pn::matmul(x, layer.weights) + layer.bias;
    if (&layer != &net.back()) x = pn::tanh(x);
  }
  return x;
}

struct Settings {
  std::int64_t steps = 128;  // of each element between two updates
  std::int64_t epochs = 4, minibatches = 4;
  float discount = 0.99f, trace = 0.95f;  // gamma and lambda of the advantages
  float clip = 0.2f;
  float entropy = 0.01f, value = 0.5f;  // what they weigh in the loss
  bool normalize = false;               // observations and rewards, by what was seen of them so far
};

/// What a policy makes of observations: an action, and how probable it was (its logarithm).
struct Choice {
  pn::Tensor action, log_probability;
};

/// A policy for actions that are numbers from 0 to n - 1.
struct Discrete {
  static Choice choose(const pn::Tensor& key, const pn::Tensor& logits, const pn::Tensor& spread) {
    const pn::Tensor action = pn::random::categorical(key, logits);
    return {action, log_probability(logits, spread, action)};
  }
  static pn::Tensor given(const pn::Tensor& action) { return action; }
  static pn::Tensor log_probability(const pn::Tensor& logits, const pn::Tensor&,
                                    const pn::Tensor& action) {
    const pn::Tensor all = pn::log_softmax(logits);
    return pn::squeeze(pn::take_along_axis(all, pn::expand_dims(action, 1), 1), {1});
  }
  static pn::Tensor entropy(const pn::Tensor& logits, const pn::Tensor&) {
    const pn::Tensor all = pn::log_softmax(logits);
    return -pn::sum(pn::exp(all) * all, {1});
  }
};

/// A policy for actions from -1 to 1: normal ones around what the network says, whose spread is
/// learned beside it. The simulator is given what is cut off there.
struct Continuous {
  static Choice choose(const pn::Tensor& key, const pn::Tensor& mean, const pn::Tensor& spread) {
    const pn::Tensor noise = pn::random::normal(key, mean.type());
    const pn::Tensor action = mean + pn::exp(spread) * noise;
    return {action, log_probability(mean, spread, action)};
  }
  static pn::Tensor given(const pn::Tensor& action) { return pn::clip(action, -1.0f, 1.0f); }
  static pn::Tensor log_probability(const pn::Tensor& mean, const pn::Tensor& spread,
                                    const pn::Tensor& action) {
    const pn::Tensor off = (action - mean) * pn::exp(-spread);
    return pn::sum(-0.5f * pn::square(off) - spread - 0.918938533f, {1});  // log(2 pi) / 2
  }
  static pn::Tensor entropy(const pn::Tensor& mean, const pn::Tensor& spread) {
    return pn::broadcast_to(pn::sum(spread), {mean.dims()[0]});  // but for a constant
  }
};

struct Model {
  Net actor, critic;
  pn::Tensor spread;  // of continuous actions, its logarithm
};

/// Mean and variance of rows that were seen so far, and how many.
struct Moments {
  pn::Tensor count, mean, variance;

  static Moments none(const pn::Dims& dims) {
    const pn::Type type = pn::type<float>(dims);
    return {pn::Tensor(1e-4f), pn::zeros(type), pn::ones(type)};
  }
  /// With more rows (Chan et al., 1979).
  Moments with(const pn::Tensor& rows) const {
    const float n = static_cast<float>(rows.dims()[0]);
    const pn::Tensor row_mean = pn::mean(rows, {0}), off = row_mean - mean, all = count + n;
    const pn::Tensor row_variance = pn::mean(pn::square(rows - row_mean), {0});
    const pn::Tensor squares =
        variance * count + row_variance * n + pn::square(off) * count * n / all;
    return {all, mean + off * n / all, squares / all};
  }
  pn::Tensor scaled(const pn::Tensor& x) const {
    return pn::clip((x - mean) * pn::rsqrt(variance + 1e-8f), -10.0f, 10.0f);
  }
};
/// What training knows from one iteration to the next: a container like any other.
struct State {
  Model model;
  pn::optimize::State<Model> optimizer;
  pn::Tensor key;
  pn::Tensor seen, begins;     // by element: what it shows, and whether its next step begins anew
  pn::Tensor returns;          // by element: of the episode so far
  pn::Tensor discounted;       // by element: the sum of rewards so far, which fade
  Moments observations, sums;  // of what was seen, and of `discounted`
  pn::Tensor iteration;
  pn::Tensor average;  // return of the last 20 episodes or so
};

/// A step of all elements.
struct Step {
  pn::Tensor seen, action, log_probability, value, reward, terminated, ended;
  pn::Tensor counts;          // 0 where it began an episode
  pn::Tensor episode_return;  // where it ended one; else 0
  pn::Tensor discounted;
};

template <class Policy, class Simulator>
class Trainer {
 public:
  Trainer(const pn::Pool<Simulator>& pool, const pn::optimize::Optimizer& optimizer,
          const Settings& settings)
      : pool_(pool), optimizer_(optimizer), settings_(settings) {}

  /// Begins all elements anew.
  State begin(const Model& model, const pn::Tensor& key) const {
    const std::int64_t n = pool_.size();
    return {model,
            optimizer_.init(model),
            key,
            pn::convert<float>(pool_.reset()),
            pn::full(pn::type<bool>({n}), false),
            pn::zeros(pn::type<float>({n})),
            pn::zeros(pn::type<float>({n})),
            Moments::none(pool_[0].observation().dims),
            Moments::none({}),
            pn::Tensor(0),
            pn::Tensor(0.0f)};
  }

  /// Acts for so many steps, and learns from them.
  State iterate(const State& before) const {
    const pn::Tensor keys = pn::random::split(before.key, 3);
    const auto act = [&](State now, pn::Tensor key) { return step(std::move(now), key); };
    auto [now, steps] = pn::scan(act, before, pn::random::split(keys[0], settings_.steps));
    now.key = keys[1];
    now.iteration = before.iteration + 1;
    const pn::Tensor episodes = pn::sum(pn::convert<float>(steps.ended));
    const pn::Tensor mean = pn::sum(steps.episode_return) / pn::maximum(episodes, 1.0f);
    now.average = before.average + episodes / (episodes + 20.0f) * (mean - before.average);
    learn(now, steps, keys[2]);
    return now;
  }

  /// What the networks are shown of observations.
  pn::Tensor view(const Moments& moments, const pn::Tensor& seen) const {
    return settings_.normalize ? moments.scaled(seen) : seen;
  }

 private:
  std::pair<State, Step> step(State now, const pn::Tensor& key) const {
    const pn::Tensor seen = view(now.observations, now.seen);
    const Choice choice = Policy::choose(key, forward(now.model.actor, seen), now.model.spread);
    const pn::Tensor value = pn::squeeze(forward(now.model.critic, seen), {1});
    const pn::Transition t = pool_.step(Policy::given(choice.action));
    const pn::Tensor ended = t.terminated | t.truncated;
    const pn::Tensor returns = now.returns + t.rewards;
    const Step made{now.seen,
                    choice.action,
                    choice.log_probability,
                    value,
                    t.rewards,
                    t.terminated,
                    ended,
                    pn::convert<float>(!now.begins),
                    pn::where(ended, returns, 0.0f),
                    settings_.discount * now.discounted + t.rewards};
    now.discounted = pn::where(ended, 0.0f, made.discounted);
    now.seen = pn::convert<float>(t.observations);
    now.begins = ended;
    now.returns = pn::where(ended, 0.0f, returns);
    return {now, made};
  }

  /// Generalized advantage estimation, backwards over the steps. The value behind an episode that
  /// was only cut off is that of its last observation, which is the next step's.
  pn::Tensor advantages(const Step& steps, const pn::Tensor& last_value) const {
    const auto back = [&](std::pair<pn::Tensor, pn::Tensor> later, Step s) {
      const auto [advantage, value] = later;
      const float gamma = settings_.discount, lambda = settings_.trace;
      const pn::Tensor delta = s.reward + gamma * pn::where(s.terminated, 0.0f, value) - s.value;
      const pn::Tensor here = delta + gamma * lambda * pn::where(s.ended, 0.0f, advantage);
      return std::pair{std::pair{here, s.value}, here};
    };
    return pn::scan(back, std::pair{pn::zeros_like(last_value), last_value}, steps,
                    {.reverse = true})
        .second;
  }

  /// The loss of some steps. Those that began an episode chose nothing, and count for nothing.
  pn::Tensor loss(const Model& model, const Step& s, const pn::Tensor& advantage) const {
    const pn::Tensor count = pn::maximum(pn::sum(s.counts), 1.0f);
    const auto mean = [&](const pn::Tensor& x) { return pn::sum(x * s.counts) / count; };
    const pn::Tensor centred = advantage - mean(advantage);
    const pn::Tensor scaled = centred / (pn::sqrt(mean(pn::square(centred))) + 1e-8f);
    const pn::Tensor chosen = forward(model.actor, s.seen);
    const pn::Tensor ratio =
        pn::exp(Policy::log_probability(chosen, model.spread, s.action) - s.log_probability);
    const pn::Tensor clipped = pn::clip(ratio, 1 - settings_.clip, 1 + settings_.clip);
    const pn::Tensor gain = mean(pn::minimum(ratio * scaled, clipped * scaled));
    const pn::Tensor value = pn::squeeze(forward(model.critic, s.seen), {1});
    const pn::Tensor error = mean(pn::square(value - (advantage + s.value)));
    return settings_.value * error - gain -
           settings_.entropy * mean(Policy::entropy(chosen, model.spread));
  }

  void learn(State& now, Step steps, const pn::Tensor& key) const {
    const Moments before = now.observations, sums = now.sums;
    const pn::Tensor last = pn::squeeze(forward(now.model.critic, view(before, now.seen)), {1});
    if (settings_.normalize) {
      now.observations = before.with(flat(steps.seen));
      now.sums = sums.with(flat(steps.discounted));
      const pn::Tensor scale = pn::rsqrt(now.sums.variance + 1e-8f);
      steps.reward = pn::clip(steps.reward * scale, -10.0f, 10.0f);
    }
    steps.seen = view(before, steps.seen);
    const std::pair all{pn::map_leaves(flat, steps), flat(advantages(steps, last))};
    const std::int64_t rows = settings_.steps * pool_.size(), n = settings_.minibatches;
    using Learner = std::pair<Model, pn::optimize::State<Model>>;
    const auto update = [&](Learner learner, pn::Tensor which) {
      const auto& [model, optimizer] = learner;
      const auto picked =
          pn::map_leaves([&](const pn::Tensor& x) { return pn::take(x, which, 0); }, all);
      const auto gradient = pn::grad([&](Model m) { return loss(m, picked.first, picked.second); });
      const auto [updates, next] = optimizer_.update(gradient(model), optimizer, model);
      return std::pair{Learner{pn::optimize::apply(model, updates), next}, std::tuple<>()};
    };
    const auto epoch = [&](Learner learner, pn::Tensor of_epoch) {
      const pn::Tensor order = pn::random::permutation(of_epoch, rows);
      return pn::scan(update, learner, pn::reshape(order, {n, rows / n}));
    };
    std::tie(now.model, now.optimizer) =
        pn::scan(epoch, Learner{now.model, now.optimizer}, pn::random::split(key, settings_.epochs))
            .first;
  }

  static pn::Tensor flat(const pn::Tensor& x) {
    pn::Dims dims{x.dims()[0] * x.dims()[1]};
    dims.insert(dims.end(), x.dims().begin() + 2, x.dims().end());
    return pn::reshape(x, dims);
  }

  const pn::Pool<Simulator>& pool_;
  const pn::optimize::Optimizer optimizer_;
  const Settings settings_;
};

}  // namespace ppo
