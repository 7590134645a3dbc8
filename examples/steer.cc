// Steers MuJoCo's cart so that its pole, which is falling, comes to rest in the middle: the pushes
// are found by gradient descent through the simulator. What it does in a step is a function of this
// process that brings its derivative along, MuJoCo's transition matrices; the trajectory, its cost,
// the gradient and Adam are one compiled loop. `./run steer` fetches MuJoCo.
//
//   steer [MODEL.xml]
#include <mujoco/mujoco.h>
#include <postern/optimize.h>
#include <postern/postern.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pn = postern;

namespace {

constexpr std::int64_t steps = 50, descents = 500;

/// A model without a state of its own: each step begins with the one that it is given.
class Cart {
 public:
  explicit Cart(const std::string& file)
      : model_(load(file)), data_(mj_makeData(model_.get()), mj_deleteData) {}

  /// The positions and speeds behind a step.
  void step(pn::View<const double> state, pn::View<const double> push, pn::View<double> next) {
    set(state, push);
    mj_step(model_.get(), data_.get());
    std::copy_n(data_->qpos, nq(), next.data());
    std::copy_n(data_->qvel, nv(), next.data() + nq());
  }
  /// The cotangents of state and push, for that of the state behind them.
  void vjp(pn::View<const double> state, pn::View<const double> push, pn::View<const double>,
           pn::View<const double> ct, pn::View<double> d_state, pn::View<double> d_push) {
    const std::int64_t n = 2 * nv(), m = model_->nu;
    by_state_.resize(static_cast<std::size_t>(n * n));
    by_push_.resize(static_cast<std::size_t>(n * m));
    set(state, push);
    mjd_transitionFD(model_.get(), data_.get(), 1e-6, true, by_state_.data(), by_push_.data(),
                     nullptr, nullptr);
    multiply(by_state_, ct, n, d_state);
    multiply(by_push_, ct, m, d_push);
  }

  std::int64_t nq() const { return model_->nq; }
  std::int64_t nv() const { return model_->nv; }

 private:
  static std::shared_ptr<mjModel> load(const std::string& file) {
    char error[1000] = "";
    mjModel* const model = mj_loadXML(file.c_str(), nullptr, error, sizeof error);
    if (!model) throw std::runtime_error("MuJoCo: " + file + ": " + error);
    model->opt.integrator = mjINT_IMPLICITFAST;  // MuJoCo has no derivative of Runge and Kutta's
    return {model, mj_deleteModel};
  }
  void set(pn::View<const double> state, pn::View<const double> push) {
    mj_resetData(model_.get(), data_.get());
    std::copy_n(state.data(), nq(), data_->qpos);
    std::copy_n(state.data() + nq(), nv(), data_->qvel);
    std::copy_n(push.data(), model_->nu, data_->ctrl);
  }
  /// out = transpose of a matrix, of so many columns, times ct.
  static void multiply(const std::vector<double>& matrix, pn::View<const double> ct,
                       std::int64_t columns, pn::View<double> out) {
    std::fill(out.begin(), out.end(), 0.0);
    for (std::int64_t i = 0; i < ct.size(); ++i)
      for (std::int64_t k = 0; k < columns; ++k)
        out[k] += matrix[static_cast<std::size_t>(i * columns + k)] * ct[i];
  }

  const std::shared_ptr<mjModel> model_;
  const std::unique_ptr<mjData, void (*)(mjData*)> data_;
  std::vector<double> by_state_, by_push_;
};

/// What a trajectory costs that begins at `start` and is pushed so.
pn::Tensor cost(Cart& cart, const pn::Tensor& start, const pn::Tensor& pushes) {
  const auto step = [&](pn::Tensor state, pn::Tensor push) {
    const pn::Tensor next = pn::call_with_vjp(
        {.name = "mujoco"}, state.type(),
        [&cart](pn::View<const double> s, pn::View<const double> p, pn::View<double> n) {
          cart.step(s, p, n);
        },
        [&cart](pn::View<const double> s, pn::View<const double> p, pn::View<const double> n,
                pn::View<const double> ct, pn::View<double> ds,
                pn::View<double> dp) { cart.vjp(s, p, n, ct, ds, dp); },
        state, push);
    return std::pair{next, next};
  };
  const auto [last, states] = pn::scan(step, start, pushes);
  const pn::Tensor weights = pn::tensor<double>({0.1, 1, 0.01, 0.01});
  return pn::sum(weights * pn::square(states)) / static_cast<double>(steps) +
         pn::sum(pn::square(last)) + 1e-3 * pn::mean(pn::square(pushes));
}

}  // namespace

int main(int count, char** arguments) try {
  Cart cart(count > 1 ? arguments[1] : POSTERN_MUJOCO_MODELS "/cart_pole.xml");
  const pn::Tensor start = pn::tensor<double>({-0.3, 0.4, 0, 0});  // of cart and pole; their speeds
  const auto cost_of = [&](pn::Tensor pushes) { return cost(cart, start, pushes); };
  const auto adam = pn::optimize::adam({.rate = 0.05});
  const auto descend = pn::jit([&](pn::Tensor pushes) {
    const auto step = [&](std::pair<pn::Tensor, pn::optimize::State<pn::Tensor>> now) {
      const auto& [p, state] = now;
      const auto [value, gradient] = pn::value_and_grad(cost_of)(p);
      const auto [updates, next] = adam.update(gradient, state, p);
      return std::pair{std::pair{pn::optimize::apply(p, updates), next}, value};
    };
    return pn::scan(step, std::pair{pushes, adam.init(pushes)}, {.length = descents});
  });

  // The gradient beside differences of the whole trajectory's cost.
  const pn::Tensor pushes = pn::zeros(pn::type<double>({steps, 1}));
  const auto value = pn::jit(cost_of);
  const std::vector<double> gradient = pn::jit(pn::grad(cost_of))(pushes).to_vector<double>();
  double off = 0, largest = 0;
  for (const std::size_t i : {0, 10, 25, 49}) {
    std::vector<double> moved(steps, 0);
    const auto at = [&](double x) {
      moved[i] = x;
      return value(pn::tensor(moved, {steps, 1})).item<double>();
    };
    const double h = 1e-5, difference = (at(h) - at(-h)) / (2 * h);
    off = std::max(off, std::abs(gradient[i] - difference));
    largest = std::max(largest, std::abs(difference));
  }
  std::printf("gradient and differences are %.1e of the largest apart\n", off / largest);

  descend(pushes).second.block_until_ready();  // compiles
  const auto begin = std::chrono::steady_clock::now();
  const auto [found, costs] = descend(pushes);
  const std::vector<double> history = costs.to_vector<double>();
  const double us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "the cost fell from %.3g to %.3g in %d descents; %.1f us for each of %d steps and its "
      "derivative\n",
      history.front(), history.back(), static_cast<int>(descents),
      us / static_cast<double>(descents * steps), static_cast<int>(descents * steps));
  return off < 1e-3 * largest && history.back() < 0.1 * history.front() ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "steer: %s\n", e.what());
  return 1;
}
