// Learns to read handwritten digits with a network of two layers. An epoch of training is one
// compiled loop, for which this process fetches the next minibatch while it computes; a second
// program has this process count a confusion matrix, and decides by it when to stop.
//
// While it trains it can be watched: a progress bar on a terminal, a page with curves, every loss
// for NumPy, TensorBoard, a line of JSON for each step. With --checkpoint it keeps where it stands
// after each epoch; with --resume it goes on from there, to the same end as if nothing had been.
//
// With --processes the processes of an mpirun train together: each takes its part of every
// minibatch, and all add up their gradients. The first one tells how it goes.
//
//   [mpirun -n 4] digits [--processes]
//          [--seed NUMBER] [--data FILE] [--report FILE.html] [--record FILE.npy]
//          [--tensorboard FOLDER] [--log FILE.jsonl] [--checkpoint FOLDER [--resume]] [--serve]
#include <postern/postern.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>

#include "digits_data.h"

namespace pn = postern;
using digits::classes, digits::Images, digits::pixels;

namespace {

constexpr std::int64_t batch = 32, hidden = 128;
constexpr float learning_rate = 2e-3f, decay_mean = 0.9f, decay_square = 0.999f, epsilon = 1e-8f;
constexpr int patience = 20;  // epochs without progress before training ends
constexpr int most_epochs = 100;

/// Weights and biases of the first layer, then of the second.
using Model = std::array<pn::Tensor, 4>;

/// What training carries from step to step: the model and, for Adam, means of its gradients and of
/// their squares.
struct State {
  Model model, mean, square;
  pn::Tensor steps;
};

/// Where early stopping stands.
struct Watch {
  Model best;
  pn::Tensor score, waited;
};

/// All that a run needs to go on, beside what the process registers.
struct Progress {
  State state;
  Watch watch;
  pn::Tensor epochs;
};

struct Data {
  explicit Data(const Images& from)
      : images(pn::tensor(from.rows, {from.size(), pixels})), labels(pn::tensor(from.labels)) {}
  pn::Tensor images, labels;
};

/// The processes that train together, or this one alone.
struct Team {
  int rank = 0, size = 1;
  std::optional<pn::Mesh> mesh;

  static Team joined() {
    if (!std::getenv("POSTERN_CLUSTER")) pn::configure({.cluster = "mpi"});
    const pn::Cluster cluster = pn::cluster();
    if (batch % cluster.size != 0)
      throw std::runtime_error("--processes: " + std::to_string(cluster.size) +
                               " processes do not share a minibatch of " + std::to_string(batch));
    return {cluster.rank, cluster.size, pn::Mesh({{"host", pn::processes}})};
  }
  bool tells() const { return rank == 0; }
  std::int64_t rows() const { return batch / size; }

  /// f on every process.
  template <class F, class Tree>
  Tree together(const F& f, const Tree& x) const {
    return mesh ? pn::shard_map(f, *mesh)(x) : f(x);
  }
  /// The sum over the processes, of all leaves in one message.
  template <class Tree>
  Tree sum(const Tree& x) const {
    if (!mesh) return x;
    std::vector<pn::Tensor> flat;
    pn::map_leaves(
        [&](const pn::Tensor& leaf) { return flat.emplace_back(pn::reshape(leaf, {-1})); }, x);
    const pn::Tensor all = pn::psum(pn::concatenate(flat, 0), "host");
    std::int64_t at = 0;
    return pn::map_leaves(
        [&](const pn::Tensor& leaf) {
          at += leaf.size();
          return pn::reshape(pn::slice_axis(all, 0, at - leaf.size(), at), leaf.dims());
        },
        x);
  }
};

/// Deals out the training images again and again, each time in a new order. Of what is dealt to a
/// team each process keeps its part.
class Deck {
 public:
  Deck(const Images& images, unsigned seed, const Team& team)
      : images_(images), team_(team), order_(images.labels.size()), random_(seed) {
    std::iota(order_.begin(), order_.end(), 0);
    next_ = order_.size();
  }

  void deal(pn::View<float> rows, pn::View<std::int32_t> labels) {
    ++deals;
    for (std::int64_t i = 0; i < batch; ++i) {
      if (next_ == order_.size()) {
        std::ranges::shuffle(order_, random_);
        next_ = 0;
      }
      const std::size_t from = order_[next_++];
      const std::int64_t row = i - team_.rank * team_.rows();
      if (row < 0 || row >= team_.rows()) continue;
      std::copy_n(&images_.rows[from * pixels], pixels, &rows(row, 0));
      labels[row] = images_.labels[from];
    }
  }

  friend std::ostream& operator<<(std::ostream& out, const Deck& d) {
    out << d.deals << ' ' << d.next_ << ' ' << d.random_;
    for (const std::size_t i : d.order_) out << ' ' << i;
    return out;
  }
  friend std::istream& operator>>(std::istream& in, Deck& d) {
    in >> d.deals >> d.next_ >> d.random_;
    for (std::size_t& i : d.order_) in >> i;
    return in;
  }

  std::int64_t deals = 0;

 private:
  const Images& images_;
  const Team& team_;
  std::vector<std::size_t> order_;
  std::size_t next_;
  std::mt19937 random_;
};

/// How often images of the class of the row were taken for the class of the column.
struct Confusion {
  std::array<std::array<int, classes>, classes> counts;
  std::int64_t fills = 0;

  void count(pn::View<const std::int32_t> predicted, pn::View<const std::int32_t> truth) {
    ++fills;
    counts = {};
    for (std::int64_t i = 0; i < truth.size(); ++i) ++counts[index(truth[i])][index(predicted[i])];
  }

  /// The part of a class that was recognised.
  float recall(std::size_t of) const {
    const int all = std::accumulate(counts[of].begin(), counts[of].end(), 0);
    return all ? static_cast<float>(counts[of][of]) / static_cast<float>(all) : 1.0f;
  }
  float accuracy() const {
    int right = 0, all = 0;
    for (std::size_t c = 0; c < counts.size(); ++c) {
      right += counts[c][c];
      all += std::accumulate(counts[c].begin(), counts[c].end(), 0);
    }
    return static_cast<float>(right) / static_cast<float>(all);
  }

  void print() const {
    std::printf("\n       taken for\n      ");
    for (std::size_t c = 0; c < counts.size(); ++c) std::printf("%5zu", c);
    std::printf("   right\n");
    for (std::size_t row = 0; row < counts.size(); ++row) {
      std::printf("%5zu ", row);
      for (const int n : counts[row]) n ? std::printf("%5d", n) : std::printf("    .");
      std::printf("%7.0f%%\n", 100 * static_cast<double>(recall(row)));
    }
  }

 private:
  static std::size_t index(std::int32_t c) { return static_cast<std::size_t>(c); }
};

Model random_model(unsigned seed) {
  const pn::Tensor keys = pn::random::split(pn::random::key(seed));
  const auto weights = [&](int layer, std::int64_t from, std::int64_t to) {
    return pn::random::normal(pn::take(keys, layer), pn::type<float>({from, to})) *
           std::sqrt(2.0f / static_cast<float>(from));
  };
  return {weights(0, pixels, hidden), pn::zeros(pn::type<float>({hidden})),
          weights(1, hidden, classes), pn::zeros(pn::type<float>({classes}))};
}

pn::Tensor scores(const Model& m, const pn::Tensor& images) {
  return pn::matmul(pn::maximum(pn::matmul(images, m[0]) + m[1], 0.0f), m[2]) + m[3];
}

/// Cross-entropy, of a whole minibatch or of a process's part of it.
pn::Tensor loss(const Model& m, const pn::Tensor& images, const pn::Tensor& labels) {
  return -pn::sum(pn::log_softmax(scores(m, images)) * pn::one_hot(labels, classes)) /
         static_cast<float>(batch);
}

State adam(const State& s, const Model& gradient) {
  State next = s;
  next.steps = s.steps + 1.0f;
  const pn::Tensor part_mean = 1.0f - pn::pow(decay_mean, next.steps),
                   part_square = 1.0f - pn::pow(decay_square, next.steps);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    next.mean[i] = decay_mean * s.mean[i] + (1 - decay_mean) * gradient[i];
    next.square[i] = decay_square * s.square[i] + (1 - decay_square) * pn::square(gradient[i]);
    next.model[i] = s.model[i] - learning_rate * (next.mean[i] / part_mean) /
                                     (pn::sqrt(next.square[i] / part_square) + epsilon);
  }
  return next;
}

struct Options {
  unsigned seed = 1;
  std::string data = POSTERN_EXAMPLE_DATA "/digits.csv.gz";
  std::string report, record, tensorboard, log, checkpoint;
  bool resume = false, processes = false, serve = false;
};

/// What listens while the compiled loop trains.
struct Listeners {
  pn::listen::Stats stats = pn::listen::stats();
  pn::listen::Histogram histogram = pn::listen::histogram();
  std::optional<pn::listen::Progress> bar;
  std::optional<pn::listen::Record> record;
  std::optional<pn::listen::TensorBoard> board;
  std::optional<pn::listen::Rows> log;
  std::optional<pn::listen::Checkpoint> checkpoint;

  Listeners(const Options& options, std::int64_t steps, const Team& team) {
    if (!team.tells()) return;
    if (isatty(STDERR_FILENO)) bar = pn::listen::progress(steps, {.label = "training"});
    if (!options.record.empty()) record = pn::listen::record(options.record);
    if (!options.tensorboard.empty()) board = pn::listen::tensorboard(options.tensorboard);
    if (!options.log.empty()) log = pn::listen::jsonl(options.log);
    if (!options.checkpoint.empty()) checkpoint = pn::listen::checkpoint(options.checkpoint);
  }

  void show(const State& s, const pn::Tensor& loss, const Model& gradient) const {
    pn::tap({.name = "loss"}, loss, stats);
    pn::tap({.name = "gradient"}, gradient, stats);
    // Nobody listens here unless somebody turns it on, on the page or by `postern attach`.
    pn::hook("model", s.model, {.ordered = false, .live = true});
    pn::tap({.name = "weights", .mode = pn::TapMode::async, .every = 50},
            std::pair{s.model[0], s.model[2]}, histogram);
    if (bar) pn::tap({.name = "loss"}, loss, *bar);
    if (record) pn::tap({.name = "loss", .mode = pn::TapMode::async}, loss, *record);
    // With the step in front, so that a run that goes on counts on.
    const std::pair at_step{pn::convert(s.steps, pn::DType::s32), loss};
    if (log) pn::tap({.name = "training"}, at_step, *log);
    if (board) pn::tap({.name = "loss"}, at_step, *board);
    if (board)
      pn::tap({.name = "gradient", .every = 50}, std::pair{at_step.first, gradient}, *board);
  }
};

/// A minibatch that the deck deals while the program computes.
using Minibatch = pn::Pending<std::pair<pn::Tensor, pn::Tensor>>;
Minibatch fetch(Deck& deck, const Team& team) {
  const std::int64_t rows_here = team.rows();
  return pn::start_call(
      {.name = "minibatch", .effect = pn::Effect::ordered},
      std::pair{pn::type<float>({rows_here, pixels}), pn::type<std::int32_t>({rows_here})},
      [&deck](pn::View<float> rows, pn::View<std::int32_t> classes_of_rows) {
        deck.deal(rows, classes_of_rows);
      });
}

/// One step with the minibatch that the step before has fetched.
State step(const State& s, const pn::Tensor& images, const pn::Tensor& labels,
           const Listeners& listeners, const Team& team) {
  const auto [value, gradient] = team.sum(pn::value_and_grad(loss)(s.model, images, labels));
  listeners.show(s, value, gradient);
  return adam(s, gradient);
}

/// Has the process count how the model does on `data`; the result is the part recognised of each
/// class.
pn::Tensor recalls(const Model& m, const Data& data, Confusion& confusion) {
  return pn::call(
      {.name = "confusion", .effect = pn::Effect::ordered}, pn::type<float>({classes}),
      [&confusion](pn::View<const std::int32_t> predicted, pn::View<const std::int32_t> truth,
                   pn::View<float> recall) {
        confusion.count(predicted, truth);
        for (std::size_t c = 0; c < recall.span().size(); ++c)
          recall.span()[c] = confusion.recall(c);
      },
      pn::argmax(scores(m, data.images)), data.labels);
}

/// Keeps the best model so far.
Watch look(const Model& m, const Watch& before, const Data& data, Confusion& confusion) {
  const pn::Tensor score = pn::mean(recalls(m, data, confusion));
  const pn::Tensor better = score > before.score;
  Watch now{m, pn::maximum(score, before.score), pn::where(better, 0, before.waited + 1)};
  for (std::size_t i = 0; i < m.size(); ++i) now.best[i] = pn::where(better, m[i], before.best[i]);
  return now;
}

Progress beginning(unsigned seed) {
  const auto zeros_like = [](const Model& m) {
    return pn::map_leaves([](const pn::Tensor& x) { return pn::zeros_like(x); }, m);
  };
  const Model model = random_model(seed);
  return {{model, zeros_like(model), zeros_like(model), pn::Tensor(0.0f)},
          {model, pn::Tensor(0.0f), pn::Tensor(0)},
          pn::Tensor(0)};
}

/// Trains until no model was better for some epochs; returns the time of a step.
double train(Progress& progress, const Images& images, const Data& watched, Deck& deck,
             Confusion& confusion, const Listeners& listeners, const Team& team) {
  const std::int64_t steps_an_epoch = images.size() / batch;
  const auto steps_of_epoch = [&](const State& s) {
    using Carry = std::pair<State, Minibatch>;
    const auto body = [&](pn::Tensor i, State now, Minibatch minibatch) {
      const auto [rows, labels] = pn::wait(minibatch);
      const Minibatch next = pn::cond(
          i + 1 < static_cast<int>(steps_an_epoch), [&] { return fetch(deck, team); },
          [&] { return minibatch; });
      return Carry{step(now, rows, labels, listeners, team), next};
    };
    return pn::fori_loop(0, steps_an_epoch, body, Carry{s, fetch(deck, team)}).first;
  };
  const auto epoch = pn::jit([&](const State& s) { return team.together(steps_of_epoch, s); },
                             {.name = "training"});
  const auto check = pn::jit([&](const State& s, const Progress& before) {
    Progress now{s, look(s.model, before.watch, watched, confusion), before.epochs + 1};
    if (listeners.checkpoint) pn::tap({.name = "progress"}, now, *listeners.checkpoint);
    return now;
  });

  epoch.compile(progress.state);
  std::chrono::duration<double, std::micro> training{0};
  std::int64_t steps = 0;
  while (progress.watch.waited.item<std::int32_t>() < patience &&
         progress.epochs.item<std::int32_t>() < most_epochs) {
    const auto began = std::chrono::steady_clock::now();
    const State state = epoch(progress.state);
    state.steps.block_until_ready();
    training += std::chrono::steady_clock::now() - began;
    steps += steps_an_epoch;
    progress = check(state, progress);
  }
  return training.count() / static_cast<double>(std::max<std::int64_t>(steps, 1));
}

/// What the first of a team says.
void tell(const std::vector<Images>& parts, unsigned seed, const Team& team, int epochs,
          const Deck& deck, const Confusion& confusion, double time) {
  std::printf("%zu images to learn from, %zu to decide when to stop, %zu to test with; seed %u\n\n",
              parts[0].labels.size(), parts[1].labels.size(), parts[2].labels.size(), seed);
  std::printf("test accuracy   %.4f\n", static_cast<double>(confusion.accuracy()));
  std::printf("steps           %lld in %d epochs of minibatches of %d\n",
              static_cast<long long>(epochs * (parts[0].size() / batch)), epochs,
              static_cast<int>(batch));
  std::printf("calls made      %lld for minibatches, %lld for confusion matrices\n",
              static_cast<long long>(deck.deals), static_cast<long long>(confusion.fills));
  std::printf("time per step   %.1f us\n", time);
  if (team.mesh)
    std::printf("processes       %d, %lld images of a minibatch each\n", team.size,
                static_cast<long long>(team.rows()));
  confusion.print();
}

/// The live page at its usual port, or at a free one.
void serve() try { pn::serve(); } catch (const pn::Error& e) {
  if (e.code() != pn::ErrorCode::unavailable) throw;
  pn::serve({.port = 0});
}

void run(const Options& options) {
  const Team team = options.processes ? Team::joined() : Team();
  if (options.serve && team.tells()) serve();
  const unsigned seed = options.seed;
  const std::vector<Images> parts = digits::split(digits::read(options.data), seed, {0.75, 0.85});
  const Data watched(parts[1]), tested(parts[2]);
  const std::int64_t steps_an_epoch = parts[0].size() / batch;
  Deck deck(parts[0], seed, team);
  Confusion confusion;
  const auto kept_deck = pn::register_state("deck", deck);
  const auto kept_count = pn::register_state("confusion matrices", confusion.fills);
  const Listeners listeners(options, most_epochs * steps_an_epoch, team);
  pn::record_timeline(!options.report.empty());

  Progress progress = beginning(seed);
  if (options.resume) {
    if (auto kept = pn::resume(std::filesystem::path(options.checkpoint), progress))
      progress = *kept;
    else
      std::fprintf(stderr, "digits: no checkpoint in %s, training begins anew\n",
                   options.checkpoint.c_str());
  }
  const double time = train(progress, parts[0], watched, deck, confusion, listeners, team);
  if (listeners.bar) std::fprintf(stderr, "\n\n");

  const auto test = pn::jit([&](Model m) { return recalls(m, tested, confusion); });
  test(progress.watch.best).block_until_ready();
  if (team.tells())
    tell(parts, seed, team, progress.epochs.item<std::int32_t>(), deck, confusion, time);
  pn::barrier();
  if (team.tells() && !options.report.empty())
    pn::report(options.report, {.title = "Learning to read digits"});
  if (options.serve && team.tells()) {
    std::fflush(stdout);
    std::fprintf(stderr, "digits: the page stays until Enter is pressed\n");
    std::getchar();
  }
  if (confusion.accuracy() < 0.96f) throw std::runtime_error("the accuracy must be at least 0.96");
}

/// What the command line asks for; nothing when it is wrong.
std::optional<Options> parse(int count, char** arguments) {
  Options options;
  const std::map<std::string, std::string*> files = {
      {"--data", &options.data},     {"--report", &options.report},
      {"--record", &options.record}, {"--tensorboard", &options.tensorboard},
      {"--log", &options.log},       {"--checkpoint", &options.checkpoint}};
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--serve") {
      options.serve = true;
      continue;
    }
    if (name == "--resume" || name == "--processes") {
      (name == "--resume" ? options.resume : options.processes) = true;
      continue;
    }
    const std::string value = i + 1 < count ? arguments[++i] : "";
    if (const auto file = files.find(name); file != files.end() && !value.empty())
      *file->second = value;
    else if (name == "--seed" && !value.empty() && value.size() < 10 &&
             value.find_first_not_of("0123456789") == std::string::npos)
      options.seed = static_cast<unsigned>(std::stoul(value));
    else
      return {};
  }
  if (options.resume && options.checkpoint.empty()) return {};
  return options;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::optional<Options> options = parse(count, arguments);
  if (!options) {
    std::fprintf(stderr,
                 "usage: digits [--processes] [--seed NUMBER] [--data FILE] [--report FILE.html] "
                 "[--record FILE.npy] [--tensorboard FOLDER] [--log FILE.jsonl] "
                 "[--checkpoint FOLDER [--resume]] [--serve]\n");
    return 2;
  }
  run(*options);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "digits: %s\n", e.what());
  return 1;
}
