// What ./bench processes runs under mpirun: collectives and halo exchanges of compiled programs
// beside the same by MPI in C, in one run. Both ranks take turns between the sides; the median of
// the rounds of the slower rank counts. One JSON object a line.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <postern/postern.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace pn = postern;
using pn::Tensor;

namespace {

using Clock = std::chrono::steady_clock;
int rank = 0, ranks = 1;
std::string way;  // "messages/": without memory that the ranks share

/// Does something so many times.
using Side = std::function<void(std::int64_t times)>;

/// Nanoseconds for one time of each side.
std::vector<double> race(const std::vector<Side>& sides, std::int64_t times, int rounds = 9) {
  std::vector<std::vector<double>> taken(sides.size());
  for (int round = 0; round <= rounds; ++round)
    for (std::size_t s = 0; s < sides.size(); ++s) {
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = Clock::now();
      sides[s](times);
      double mine = std::chrono::duration<double, std::nano>(Clock::now() - begin).count(), all = 0;
      MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (round > 0) taken[s].push_back(all / static_cast<double>(times));  // the first warms up
    }
  std::vector<double> out;
  for (std::vector<double>& list : taken) {
    std::ranges::nth_element(list, list.begin() + std::ssize(list) / 2);
    out.push_back(list[list.size() / 2]);
  }
  return out;
}

void line(const std::string& name, double value, const std::string& peer, double peer_value,
          const std::string& note = "") {
  if (rank != 0) return;
  std::printf("{\"name\": \"processes/%s%s\", \"value\": %.1f, \"unit\": \"ns\"", way.c_str(),
              name.c_str(), value);
  if (!peer.empty())
    std::printf(", \"peer\": \"%s\", \"peer_value\": %.1f, \"ratio\": %.3f", peer.c_str(),
                peer_value, value / peer_value);
  if (!note.empty()) std::printf(", \"note\": \"%s\"", note.c_str());
  std::printf("}\n");
  std::fflush(stdout);
}

/// So many times in one execution, after one that compiles.
Side looped(const std::function<Tensor(Tensor)>& body, const Tensor& start, std::int64_t times) {
  const auto f = pn::jit([=](Tensor x) {
    return pn::fori_loop(
        0, times, [&](Tensor, Tensor v) { return body(v); }, x);
  });
  return [=](std::int64_t) { f(start).block_until_ready(); };
}

/// A call in a loop, which each collective is too.
double call_alone() {
  constexpr std::int64_t times = 100'000;
  const Side side = looped(
      [](Tensor v) {
        return pn::call(
            {.name = "same", .effect = pn::Effect::ordered}, v.type(),
            [](pn::View<const float> x, pn::View<float> y) { y[0] = x[0]; }, v);
      },
      pn::zeros(pn::type<float>({1})), times);
  return race({side}, times)[0];
}

/// What a sum over n ranks takes where each sends straight to each other one: a latency for each
/// piece that comes, and a bandwidth, which is another one for arrays beyond the caches. Two ranks
/// show both, for each size.
class Model {
 public:
  void add(const std::string& name, std::int64_t bytes, double ns) {
    seen_.push_back({name, bytes, ns});
  }
  void print() const {
    line("model/latency", latency(), "", 0, "of a piece, as the shortest sum shows it");
    for (const Seen& seen : seen_)
      for (const int n : {4, 16, 128, 1024})
        line("model/psum/" + seen.name + "/" + std::to_string(n), for_ranks(seen, n), "", 0,
             "by the model, not measured");
  }

 private:
  struct Seen {
    std::string name;
    std::int64_t bytes;
    double ns;
  };
  double latency() const { return seen_.front().ns; }
  /// Arrays of at most 8 KiB go whole to every other rank. Of others each reduces a part and sends
  /// what came of it, in two steps: 2 (n - 1) / n of the array go each way, twice as much as with
  /// two ranks in the end.
  double for_ranks(const Seen& seen, int n) const {
    const double others = n - 1;
    if (seen.bytes <= 8 << 10) return others * seen.ns;
    const double by_bytes = std::max(0.0, seen.ns - 2 * latency());
    return 2 * others * latency() + 2 * others / n * by_bytes;
  }
  std::vector<Seen> seen_;
};

void sums(const pn::Mesh& mesh, double call) {
  Model model;
  const auto sum = pn::shard_map([](Tensor v) { return pn::psum(v, "host"); }, mesh);
  const auto bare = [](std::int64_t count) -> Side {
    return [x = std::vector<float>(static_cast<std::size_t>(count)),
            y = std::vector<float>(static_cast<std::size_t>(count)),
            count](std::int64_t times) mutable {
      for (std::int64_t i = 0; i < times; ++i)
        MPI_Allreduce(x.data(), y.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    };
  };
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{256}}) {
    constexpr std::int64_t times = 20'000;
    const auto loop = pn::jit(pn::shard_map(
        [&](Tensor x) {
          return pn::fori_loop(
              0, times, [](Tensor, Tensor v) { return pn::psum(v, "host"); }, x);
        },
        mesh));
    const Tensor x = pn::zeros(pn::type<float>({count}));
    const auto t = race({[&](std::int64_t) { loop(x).block_until_ready(); }, bare(count)}, times);
    line("psum/" + std::to_string(4 * count) + "B", t[0], "MPI_Allreduce", t[1],
         "a call takes " + std::to_string(static_cast<int>(call)) + " ns");
    model.add(std::to_string(4 * count) + "B", 4 * count, t[0]);
  }
  // In place of its operand, as a training step has it: what a new result costs depends on whether
  // the system has taken back the memory of the last one.
  const auto whole = pn::jit(sum, {.donate = {0}});
  for (const auto& [name, bytes, times] :
       {std::tuple{"64KiB", std::int64_t{1} << 16, std::int64_t{200}},
        std::tuple{"1MiB", std::int64_t{1} << 20, std::int64_t{50}},
        std::tuple{"64MiB", std::int64_t{1} << 26, std::int64_t{3}}}) {
    Tensor x = pn::zeros(pn::type<float>({bytes / 4}));
    const Side ours = [&](std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) x = whole(x).block_until_ready();
    };
    const auto t = race({ours, bare(bytes / 4)}, times);
    line(std::string("psum/") + name, t[0], "MPI_Allreduce", t[1], "an execution each, in place");
    model.add(name, bytes, t[0]);
  }
  model.print();
}

/// Heat in a plate that is a ring of ranks, `side` rows and columns each; one step. The block has a
/// column more on each side, as the plate goes around, and beside it is the row of each neighbour.
constexpr std::int64_t side = 512;
using Block = std::tuple<Tensor, Tensor, Tensor>;
Block heat_step(const Block& block) {
  std::vector<std::pair<int, int>> forth, back;
  for (int i = 0; i < ranks; ++i) {
    forth.emplace_back(i, (i + 1) % ranks);
    back.emplace_back((i + 1) % ranks, i);
  }
  const auto& [u, before, after] = block;
  const Tensor above = pn::concatenate({before, pn::slice_axis(u, 0, 0, side - 1)}, 0),
               below = pn::concatenate({pn::slice_axis(u, 0, 1, side), after}, 0);
  const auto columns = [](const Tensor& x, std::int64_t from) {
    return pn::slice_axis(x, 1, from, from + side);
  };
  const Tensor middle = columns(u, 1);
  const Tensor next = middle + 0.2f * (columns(above, 1) + columns(below, 1) + columns(u, 0) +
                                       columns(u, 2) - 4.0f * middle);
  const Tensor v = pn::concatenate(
      {pn::slice_axis(next, 1, side - 1, side), next, pn::slice_axis(next, 1, 0, 1)}, 1);
  return {v, pn::ppermute(pn::slice_axis(v, 0, side - 1, side), "host", forth),
          pn::ppermute(pn::slice_axis(v, 0, 0, 1), "host", back)};
}

class PlateInC {
 public:
  void step() {
    const int up = (rank + ranks - 1) % ranks, down = (rank + 1) % ranks;
    float *const first = now_.data() + side, *const last = now_.data() + side * side;
    MPI_Sendrecv(last, static_cast<int>(side), MPI_FLOAT, down, 0, now_.data(),
                 static_cast<int>(side), MPI_FLOAT, up, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(first, static_cast<int>(side), MPI_FLOAT, up, 1, last + side,
                 static_cast<int>(side), MPI_FLOAT, down, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (std::int64_t i = 1; i <= side; ++i) {
      const float* const u = now_.data() + i * side;
      float* const v = next_.data() + i * side;
      const auto at = [&](std::int64_t j, std::int64_t left, std::int64_t right) {
        v[j] = u[j] + 0.2f * (u[j - side] + u[j + side] + u[right] + u[left] - 4.0f * u[j]);
      };
      at(0, side - 1, 1);
      for (std::int64_t j = 1; j + 1 < side; ++j) at(j, j - 1, j + 1);
      at(side - 1, side - 2, 0);
    }
    std::swap(now_, next_);
  }

 private:
  std::vector<float> now_ = std::vector<float>(static_cast<std::size_t>((side + 2) * side), 1.0f),
                     next_ = now_;
};

void halo(const pn::Mesh& mesh) {
  constexpr std::int64_t times = 200;
  const auto loop = pn::jit(pn::shard_map(
      [&](Tensor u, Tensor before, Tensor after) {
        return pn::fori_loop(
            0, times, [](Tensor, Block now) { return heat_step(now); }, Block(u, before, after));
      },
      mesh));
  const Tensor u = pn::full(pn::type<float>({side, side + 2}), 1.0f),
               row = pn::full(pn::type<float>({1, side + 2}), 1.0f);
  PlateInC plate;
  const Side in_c = [&](std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) plate.step();
  };
  const Side ours = [&](std::int64_t) { std::get<0>(loop(u, row, row)).block_until_ready(); };
  const auto t = race({ours, in_c}, times);
  line("halo/" + std::to_string(ranks), t[0], "MPI_Sendrecv and a loop in C", t[1],
       "512 x 512 on each process, a row to each side");
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (const char* const memory = std::getenv("POSTERN_CLUSTER_MEMORY");
      memory && std::string_view(memory) == "0")
    way = "messages/";
  const pn::Mesh mesh({{"host", pn::processes}});
  if (ranks > 1) {
    const double call = call_alone();
    line("call", call, "", 0);
    sums(mesh, call);
  }
  halo(mesh);
  pn::barrier();
  MPI_Finalize();
  return 0;
}
