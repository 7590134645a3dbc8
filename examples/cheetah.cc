// Teaches MuJoCo's HalfCheetah to run, by PPO. Acting in 32 environments, estimating advantages and
// updating the networks are one compiled loop; MuJoCo is a library of this process, which a pool
// asks for each step. `./run cheetah` fetches it.
//
// While it trains it can be watched on the live page. With --checkpoint it keeps where it stands;
// with --resume it goes on from there, to the same end as if nothing had been. At the end it says
// what the policy brings in 20 episodes and where the time went, and draws the gait.
//
//   cheetah [--steps NUMBER] [--seed NUMBER] [--threads NUMBER] [--picture FILE.svg]
//           [--checkpoint FOLDER [--resume]] [--serve] [--models FOLDER] [--check FILE]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "mujoco_world.h"
#include "ppo.h"

namespace pn = postern;

namespace {

constexpr std::int64_t elements = 32, longest = 1000, judges = 20;
constexpr std::int64_t between = 64;  // steps of each element between two updates

using Pool = pn::Pool<World>;
using Trainer = ppo::Trainer<ppo::Continuous, World>;

ppo::Model first_model(const pn::Tensor& key, const World& world) {
  const std::int64_t seen = world.observation().dims[0], moves = world.action().dims[0];
  const pn::Tensor keys = pn::random::split(key);
  return {ppo::network(keys[0], {seen, 64, 64, moves}, 0.01f),
          ppo::network(keys[1], {seen, 64, 64, 1}, 1), pn::zeros(pn::type<float>({moves}))};
}

/// The return of an episode of each element, when the policy does not try out.
pn::Tensor returns_of(const Pool& pool, const Trainer& trainer, const ppo::State& state) {
  const auto act = [&](std::pair<pn::Tensor, pn::Tensor> now) {
    const auto& [seen, going] = now;
    const pn::Tensor shown = trainer.view(state.observations, pn::convert<float>(seen));
    const pn::Tensor mean = ppo::forward(state.model.actor, shown);
    const pn::Transition t = pool.step(ppo::Continuous::given(mean));
    const pn::Tensor counted = pn::where(going, t.rewards, 0.0f);
    return std::pair{std::pair{t.observations, going & !(t.terminated | t.truncated)}, counted};
  };
  const std::pair start{pool.reset(), pn::full(pn::type<bool>({pool.size()}), true)};
  return pn::sum(pn::scan(act, start, {.length = longest}).second, {0});
}

/// Draws the last steps of where an environment has been, one figure beside the other.
void draw_gait(const std::string& file, const World& world) {
  constexpr std::size_t figures = 12, every = 2;
  const std::unique_ptr<mjData, void (*)(mjData*)> data(mj_makeData(&world.model()), mj_deleteData);
  std::ofstream out(file);
  out << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='-1 -1.6 " << figures * 1.3 + 1
      << " 1.9' stroke-linecap='round'><path d='M-1 0H99' stroke='#999' stroke-width='.02'/>\n";
  for (std::size_t i = 0; i < figures && figures * every <= world.trail.size(); ++i) {
    const auto& positions = world.trail[world.trail.size() - (figures - i) * every];
    std::ranges::copy(positions, data->qpos);
    mj_kinematics(&world.model(), data.get());
    for (int g = 0; g < world.model().ngeom; ++g) {
      if (world.model().geom_type[g] != mjGEOM_CAPSULE) continue;
      const double *p = data->geom_xpos + 3 * g, *m = data->geom_xmat + 9 * g;
      const double half = world.model().geom_size[3 * g + 1];
      const double x = p[0] - positions[0] + 1.3 * static_cast<double>(i);
      out << "<path d='M" << x - half * m[2] << " " << -(p[2] - half * m[8]) << "L"
          << x + half * m[2] << " " << -(p[2] + half * m[8]) << "' stroke='hsl(" << 40 * g
          << " 60% 50%)' stroke-width='" << 2 * world.model().geom_size[3 * g] << "'/>\n";
    }
  }
  out << "</svg>\n";
}

/// Steps as gymnasium did, whose answers are in a file (scripts/golden_mujoco), and compares to the
/// bit. Returns how many steps were compared.
int check_against(const std::string& file, const std::string& models) {
  std::ifstream in(file);
  std::string line, word, reward, ended, digest;
  std::unique_ptr<World> world;
  std::vector<double> seen;
  std::vector<float> move;
  std::uint64_t random = 1;
  std::int64_t seen_dims[1], move_dims[1];
  int compared = 0;
  const auto shown = [&] { return pn::View<double>(seen.data(), seen_dims, 1, seen_dims[0]); };
  while (std::getline(in, line)) {
    std::istringstream words(line);
    words >> word;
    if (word == "model") {
      words >> word;
      const Task& task = word == hopper.name ? hopper : half_cheetah;
      world = std::make_unique<World>(World::load(models + "/" + task.model), task);
      seen.resize(static_cast<std::size_t>(seen_dims[0] = world->observation().dims[0]));
      move.resize(static_cast<std::size_t>(move_dims[0] = world->action().dims[0]));
      random = 1;
    } else if (word == "begin") {
      std::vector<double> state;
      while (words >> word) state.push_back(std::strtod(word.c_str(), nullptr));
      world->begin(state, shown());
    } else {
      words >> reward >> ended >> digest;
      for (float& x : move) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        x = static_cast<float>(static_cast<double>(random >> 40) / (1 << 23) - 1);
      }
      const pn::Stepped made = world->step({move.data(), move_dims, 1, move_dims[0]}, shown());
      std::uint64_t sum = 0xcbf29ce484222325;
      for (const double& x : seen)
        for (std::size_t i = 0; i < sizeof x; ++i)
          sum = (sum ^ reinterpret_cast<const unsigned char*>(&x)[i]) * 0x100000001b3;
      if (made.reward != std::strtod(reward.c_str(), nullptr) ||
          made.terminated != (ended == "1") || sum != std::strtoull(digest.c_str(), nullptr, 16))
        throw std::runtime_error("differs from gymnasium: step " + std::to_string(compared) +
                                 ", reward " + std::to_string(made.reward) + ": " + line);
      ++compared;
    }
  }
  return compared;
}

struct Wishes {
  std::map<std::string, std::string> given;

  Wishes(int count, char** arguments) {
    for (int i = 1; i < count; ++i) {
      const std::string name = arguments[i];
      if (name.substr(0, 2) != "--") throw std::runtime_error("what is " + name + "?");
      const bool flag = name == "--resume" || name == "--serve";
      if (!flag && i + 1 == count) throw std::runtime_error(name + " takes a value");
      given[name] = flag ? "yes" : arguments[++i];
    }
  }
  std::string operator()(const std::string& name, const std::string& otherwise = "") const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
  }
  std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    const std::string text = (*this)(name);
    return text.empty() ? otherwise : std::stoll(text);
  }
};

void train(const Wishes& wish) {
  const auto seed = static_cast<std::uint64_t>(wish.number("--seed", 1));
  const auto model = World::load(wish("--models", POSTERN_MUJOCO_MODELS) + "/half_cheetah.xml");
  const auto make = [&](std::int64_t) { return World(model, half_cheetah); };
  const std::int64_t threads = wish.number("--threads", 0);
  const Pool pool(elements, make,
                  {.name = "cheetah", .threads = threads, .seed = seed, .max_steps = longest});
  const Pool judge(
      judges, make,
      {.name = "judge", .threads = threads, .seed = ~seed, .max_steps = longest, .kept = false});
  const ppo::Settings settings{
      .steps = between, .epochs = 10, .minibatches = 16, .entropy = 0, .normalize = true};
  const auto iterations =
      static_cast<std::int32_t>(wish.number("--steps", 1'000'000) / (elements * between));
  const auto rate =
      pn::optimize::linear(6e-4, 0, iterations * settings.epochs * settings.minibatches);
  const Trainer trainer(pool,
                        pn::optimize::chain({pn::optimize::clip_by_global_norm(0.5),
                                             pn::optimize::adam({.rate = rate})}),
                        settings);
  if (!wish("--serve").empty()) pn::serve();

  const std::string folder = wish("--checkpoint");
  std::optional<pn::listen::Checkpoint> keep;
  if (!folder.empty()) keep.emplace(folder, pn::listen::CheckpointOptions{.every = 10});
  const auto learn = pn::jit([&](ppo::State from) {
    const auto unfinished = [&](ppo::State now) { return now.iteration < iterations; };
    const auto iterate = [&](const ppo::State& now) {
      const ppo::State next = trainer.iterate(now);
      pn::tap({.name = "progress", .mode = pn::TapMode::async},
              std::pair{next.iteration, next.average}, [](std::int32_t i, float average) {
                if (i % 10 == 0) {
                  std::printf("%7lld steps: return %.0f\n",
                              static_cast<long long>(i) * elements * between, average);
                  std::fflush(stdout);
                }
              });
      if (keep) pn::tap({.name = "state"}, next, *keep);
      return next;
    };
    return pn::while_loop(unfinished, iterate, from);
  });

  const pn::Tensor keys = pn::random::split(pn::random::key(seed));
  ppo::State start = trainer.begin(first_model(keys[0], pool[0]), keys[1]);
  if (!wish("--resume").empty()) start = pn::resume(folder, start).value_or(start);
  const std::int32_t done = start.iteration.item<std::int32_t>();
  for (std::int64_t e = 0; e < elements; ++e) pool[e].spent = 0;
  const auto begin = std::chrono::steady_clock::now();
  const ppo::State end = learn(start);
  const double sum_of_weights = pn::sum(pn::abs(end.model.actor[0].weights)).item<float>();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  pn::barrier();

  std::int64_t spent = 0;
  for (std::int64_t e = 0; e < elements; ++e) spent += pool[e].spent;
  const double steps = static_cast<double>(iterations - done) * elements * between;
  std::printf("%.0f steps in %.1f s: %.0f a second; MuJoCo worked for %.1f s of a core\n", steps,
              seconds, steps / seconds, static_cast<double>(spent) / 1e9);
  const std::string picture = wish("--picture");
  for (std::int64_t e = 0; e < judges; ++e) judge[e].leaves_trail = !picture.empty();
  const pn::Tensor returns =
      pn::jit([&](ppo::State s) { return returns_of(judge, trainer, s); })(end);
  std::printf("return over %d episodes: %.1f (weights %.9g)\n", static_cast<int>(judges),
              pn::mean(returns).item<float>(), sum_of_weights);
  const std::int64_t best = pn::argmax(returns).item<std::int32_t>();
  if (!picture.empty()) draw_gait(picture, judge[best]);
}

}  // namespace

int main(int count, char** arguments) try {
  const Wishes wish(count, arguments);
  if (const std::string golden = wish("--check"); !golden.empty())
    std::printf("%d steps are gymnasium's\n",
                check_against(golden, wish("--models", POSTERN_MUJOCO_MODELS)));
  else
    train(wish);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cheetah: %s\n", e.what());
  return 1;
}
