// Heat in a plate, on one process or several: mpirun -n 4 ./heat with POSTERN_CLUSTER=mpi. Each
// process has a block of the plate, and in each step takes the rows and columns beside it from its
// neighbours. What comes out is what one process computes, to the last bit; the derivative with
// respect to the plate at the beginning goes the same way back.
#include <postern/postern.h>

#include <cmath>
#include <cstdio>

namespace pn = postern;
using pn::Tensor;

namespace {

constexpr std::int64_t side = 64;
constexpr int steps = 100;

/// One step, given the block with a row or column more on each side.
Tensor spread(const Tensor& b) {
  const std::int64_t rows = b.dims()[0], columns = b.dims()[1];
  const auto shifted = [&](std::int64_t down, std::int64_t right) {
    return pn::slice_axis(pn::slice_axis(b, 0, down, down + rows - 2), 1, right,
                          right + columns - 2);
  };
  const Tensor middle = shifted(1, 1);
  return middle +
         0.2f * ((shifted(0, 1) + shifted(2, 1)) + (shifted(1, 0) + shifted(1, 2)) - 4.0f * middle);
}

/// The block with cold edges around it.
Tensor framed(const Tensor& u) {
  const std::int64_t rows = u.dims()[0], columns = u.dims()[1];
  const Tensor across = pn::zeros(pn::type<float>({1, columns})),
               along = pn::zeros(pn::type<float>({rows + 2, 1}));
  return pn::concatenate({along, pn::concatenate({across, u, across}, 0), along}, 1);
}

/// The block with what neighbours have beside it; at the edge of the plate nobody sends: zeros.
Tensor with_neighbours(const Tensor& u) {
  const auto beside = [](const Tensor& x, std::int64_t axis, const char* name) {
    const auto n = static_cast<int>(pn::axis_size(name));
    std::vector<std::pair<int, int>> forth, back;
    for (int i = 0; i + 1 < n; ++i) {
      forth.emplace_back(i, i + 1);
      back.emplace_back(i + 1, i);
    }
    const std::int64_t extent = x.dims()[static_cast<std::size_t>(axis)];
    const Tensor before = pn::ppermute(pn::slice_axis(x, axis, extent - 1, extent), name, forth),
                 after = pn::ppermute(pn::slice_axis(x, axis, 0, 1), name, back);
    return pn::concatenate({before, x, after}, axis);
  };
  return beside(beside(u, 0, "row"), 1, "column");
}

}  // namespace

int main() {
  const pn::Cluster cluster = pn::cluster();
  const int rows = cluster.size % 2 == 0 ? 2 : 1, columns = cluster.size / rows;
  if (side % columns != 0) {
    std::printf("%d processes do not divide a plate of %d columns\n", cluster.size,
                static_cast<int>(side));
    return 1;
  }
  const pn::Mesh mesh({{"row", pn::processes(rows)}, {"column", pn::processes(columns)}});
  const pn::P block("row", "column");

  const auto evolve = [](auto border) {
    return [=](Tensor u) {
      return pn::fori_loop(
          0, steps, [&](Tensor, Tensor now) { return spread(border(now)); }, u);
    };
  };
  const auto together =
      pn::shard_map(evolve(with_neighbours), mesh, {.in = {block}, .out = {block}});
  const auto alone = evolve(framed);
  // How far the plate is from the temperature that is wanted, at the end.
  const auto distance = [](auto solver) {
    return [=](Tensor u) { return pn::mean(pn::square(pn::collect(solver(u)) - 0.5f)); };
  };

  const Tensor place = pn::iota<float>(side) * (1.0f / side);
  const Tensor start = pn::sin(9.0f * pn::reshape(place, {side, 1})) * pn::cos(7.0f * place);
  const auto whole = [&](const auto& f) {
    return pn::collect(f(start)).template to_vector<float>();
  };
  const std::vector<float> end = whole(pn::jit(together)), expected = whole(pn::jit(alone)),
                           slope = whole(pn::jit(pn::grad(distance(together)))),
                           wanted = whole(pn::jit(pn::grad(distance(alone))));
  std::size_t different = 0;
  float apart = 0, largest = 0;
  for (std::size_t i = 0; i < end.size(); ++i) {
    different += end[i] != expected[i];
    apart = std::max(apart, std::abs(slope[i] - wanted[i]));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  if (cluster.rank == 0)
    std::printf(
        "%d processes in %d rows: %zu of %zu temperatures differ from one process's, the "
        "derivative by %.1e of %.1e\n",
        cluster.size, rows, different, end.size(), static_cast<double>(apart),
        static_cast<double>(largest));
  return different == 0 && apart <= 1e-6f * largest ? 0 : 1;
}
