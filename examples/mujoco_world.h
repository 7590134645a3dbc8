// HalfCheetah and Hopper by MuJoCo, with what gymnasium's environments of that name (version 5)
// show, reward and end.
#pragma once
#include <mujoco/mujoco.h>
#include <postern/pool.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

/// What there is to know of an environment.
struct Task {
  const char* name;
  const char* model;     // its file
  int frames;            // of MuJoCo in a step
  float control_weight;  // of the squares of an action, which reduce the reward
  double alive = 0;      // reward of a step in which it has not fallen
  double noise;          // of the first positions and speeds
  bool normal_speeds;    // else these are uniform
  bool falls;            // an episode ends where it does
  double fastest;        // of the speeds that are shown
};
inline constexpr Task half_cheetah{"HalfCheetah", "half_cheetah.xml", 5, 0.1f, 0, 0.1, true, false,
                                   mjMAXVAL};
inline constexpr Task hopper{"Hopper", "hopper.xml", 4, 1e-3f, 1, 5e-3, false, true, 10};

/// An environment: one body, of a model that others share.
class World {
 public:
  /// Throws std::runtime_error, with what MuJoCo says of a model that is missing or damaged.
  static std::shared_ptr<const mjModel> load(const std::string& file) {
    char error[1000] = "";
    mjModel* const model = mj_loadXML(file.c_str(), nullptr, error, sizeof error);
    if (!model) throw std::runtime_error("MuJoCo: " + file + ": " + error);
    return {model, mj_deleteModel};
  }

  World(std::shared_ptr<const mjModel> model, const Task& task)
      : task_(task), model_(std::move(model)), data_(mj_makeData(model_.get()), mj_deleteData) {}

  postern::Type action() const { return postern::type<float>({model_->nu}); }
  postern::Type observation() const { return postern::type<double>({model_->nq - 1 + model_->nv}); }

  void reset(std::uint64_t seed, postern::View<double> seen) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-task_.noise, task_.noise);
    std::normal_distribution<double> normal(0, task_.noise);
    std::vector<double> state;
    for (int i = 0; i < model_->nq; ++i) state.push_back(model_->qpos0[i] + uniform(random));
    for (int i = 0; i < model_->nv; ++i)
      state.push_back(task_.normal_speeds ? normal(random) : uniform(random));
    begin(state, seen);
  }
  /// Begins an episode with these positions and speeds.
  void begin(const std::vector<double>& state, postern::View<double> seen) {
    mj_resetData(model_.get(), data_.get());
    std::copy_n(state.begin(), model_->nq, data_->qpos);
    std::copy_n(state.begin() + model_->nq, model_->nv, data_->qvel);
    mj_forward(model_.get(), data_.get());
    show(seen);
  }

  postern::Stepped step(postern::View<const float> action, postern::View<double> seen) {
    const auto begin = std::chrono::steady_clock::now();
    const double before = data_->qpos[0];
    float squares = 0;  // gymnasium adds them up as they are given
    for (int i = 0; i < model_->nu; ++i) {
      data_->ctrl[i] = action[i];
      squares += action[i] * action[i];
    }
    for (int i = 0; i < task_.frames; ++i) mj_step(model_.get(), data_.get());
    const double speed = (data_->qpos[0] - before) / (model_->opt.timestep * task_.frames);
    show(seen);
    if (leaves_trail) trail.emplace_back(data_->qpos, data_->qpos + model_->nq);
    const bool fallen = task_.falls && !stands();
    const double alive = fallen ? 0 : task_.alive;
    spent += (std::chrono::steady_clock::now() - begin).count();
    return {.reward = speed + alive - task_.control_weight * squares, .terminated = fallen};
  }

  std::string save() const {
    std::string bytes(state_size() * sizeof(mjtNum), '\0');
    std::vector<mjtNum> state(state_size());
    mj_getState(model_.get(), data_.get(), state.data(), mjSTATE_INTEGRATION);
    std::memcpy(bytes.data(), state.data(), bytes.size());
    return bytes;
  }
  void load(std::string_view bytes) {
    std::vector<mjtNum> state(state_size());
    if (bytes.size() != state.size() * sizeof(mjtNum))
      throw std::runtime_error("the state of another model");
    std::memcpy(state.data(), bytes.data(), bytes.size());
    mj_setState(model_.get(), data_.get(), state.data(), mjSTATE_INTEGRATION);
    mj_forward(model_.get(), data_.get());
    mj_setState(model_.get(), data_.get(), state.data(), mjSTATE_INTEGRATION);
  }

  const mjModel& model() const { return *model_; }
  std::int64_t spent = 0;  // nanoseconds in steps
  bool leaves_trail = false;
  std::vector<std::vector<double>> trail;  // the positions behind each step since

 private:
  std::size_t state_size() const {
    return static_cast<std::size_t>(mj_stateSize(model_.get(), mjSTATE_INTEGRATION));
  }
  bool stands() const {
    const double height = data_->qpos[1], angle = data_->qpos[2];
    bool fits = height > 0.7 && std::abs(angle) < 0.2;
    for (int i = 2; i < model_->nq; ++i) fits &= std::abs(data_->qpos[i]) < 100;
    for (int i = 0; i < model_->nv; ++i) fits &= std::abs(data_->qvel[i]) < 100;
    return fits;
  }
  void show(postern::View<double> seen) const {
    std::copy_n(data_->qpos + 1, model_->nq - 1, seen.data());
    for (int i = 0; i < model_->nv; ++i)
      seen[model_->nq - 1 + i] = std::clamp(data_->qvel[i], -task_.fastest, task_.fastest);
  }

  Task task_;
  std::shared_ptr<const mjModel> model_;
  std::unique_ptr<mjData, void (*)(mjData*)> data_;
};
