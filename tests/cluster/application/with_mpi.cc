// An application that begins MPI itself and has messages of its own under way while programs run,
// and that ends MPI before its last run: that run fails, and nothing aborts.
//   with_mpi                 that
//   with_mpi save|load FILE  saves programs over so many processes, or runs them over others; and
//                            goes on from checkpoints that so many have made
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <postern/postern.h>

#include <cstdio>
#include <string>

namespace pn = postern;

namespace {

const pn::P rows("host");

/// Means and twice the parts, of rows that each process gives.
void save_parts(const std::string& file) {
  const pn::Mesh mesh({{"host", pn::processes}});
  const auto f = pn::jit(pn::shard_map(
      [](pn::Tensor v) {
        return std::pair{pn::pmean(v, "host"), 2.0f * v};
      },
      mesh, {.in = {rows}, .out = {pn::P(), rows}}));
  const pn::Tensor x =
      pn::device_put(pn::ones(pn::type<float>({2})), pn::Sharding(mesh, rows), pn::Gives::part);
  pn::save(file, f.lower(x));
}

struct Kept {
  pn::Tensor numbers;
};

/// What lies over the processes, in two checkpoints that they make together: with a state that all
/// have alike, and with one that each has of its own.
void keep_parts(const std::string& folder, int rank) {
  const pn::Sharding sharding(pn::Mesh({{"host", pn::processes}}), rows);
  const auto keep_in = [&](const std::string& name) {
    const pn::listen::CheckpointOptions at_once{.async = false};
    pn::jit([&](Kept x) {
      return pn::tap({.partitioned = sharding}, x, pn::listen::checkpoint(folder + name, at_once));
    })(Kept{pn::iota<float>(12)});
  };
  int alike = 5, own = rank;
  const auto first = pn::register_state("alike", alike);
  keep_in(".alike");
  const auto second = pn::register_state("own", own);
  keep_in(".own");
}

/// By processes of another number.
bool goes_on(const std::string& folder) {
  int alike = 0, own = -1;
  const auto first = pn::register_state("alike", alike);
  const auto kept = pn::resume<Kept>(folder + ".alike");
  const pn::Sharding sharding(pn::Mesh({{"host", pn::processes}}), rows);
  const auto again = pn::collect(pn::device_put(kept->numbers, sharding));
  if (alike != 5 || again.to_vector<float>() != pn::iota<float>(12).to_vector<float>())
    return false;
  const auto second = pn::register_state("own", own);
  try {
    pn::resume<Kept>(folder + ".own");
  } catch (const pn::Error& e) {
    return own == -1 &&
           std::string(e.what()).find("registered states that differ") != std::string::npos;
  }
  return false;
}

bool runs(const std::string& file, int rank, int size) {
  const auto n = static_cast<float>(size);
  const pn::Tensor total = pn::load(file).run({pn::Tensor(1.0f)})[0];
  const pn::Tensor mine = pn::full(pn::type<float>({2}), static_cast<float>(rank));
  const pn::Sharding sharding(pn::Mesh({{"host", pn::processes}}), rows);
  const auto y = pn::load(file + ".parts").run({pn::device_put(mine, sharding, pn::Gives::part)});
  const std::vector<float> twice = pn::collect(y[1]).to_vector<float>();
  return total.item<float>() == n && y[0].to_vector<float>()[1] == (n - 1) / 2 &&
         twice.size() == 2 * static_cast<std::size_t>(size) && twice.back() == 2 * (n - 1);
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto total = pn::jit(pn::shard_map([](pn::Tensor v) { return pn::psum(v, "host"); },
                                           pn::Mesh({{"host", pn::processes}})));
  const pn::Cluster cluster = pn::cluster();
  if (cluster.rank != rank || cluster.size != size) return 1;
  if (argc == 3) {
    const bool loads = std::string(argv[1]) == "load",
               ran = loads && runs(argv[2], rank, size) && goes_on(argv[2]);
    if (!loads) {  // the same on all; each writes it whole
      pn::save(argv[2], total.lower(pn::Tensor(1.0f)));
      save_parts(std::string(argv[2]) + ".parts");
      keep_parts(argv[2], rank);
    }
    MPI_Finalize();
    return ran || !loads ? 0 : 6;
  }
  for (int i = 0; i < 100; ++i) {
    int mine = i + rank, theirs = -1;
    MPI_Request request;
    MPI_Irecv(&theirs, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &request);
    if (total(pn::Tensor(static_cast<float>(i))).item<float>() != static_cast<float>(i * size))
      return 2;
    MPI_Send(&mine, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (theirs != i + (rank + size - 1) % size) return 3;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  try {
    total(pn::Tensor(1.0f)).block_until_ready();
  } catch (const pn::CallbackError& e) {
    std::printf("process %d: %s\n", rank, e.what());
    const bool says =
        std::string(e.what()).find("the application has ended MPI") != std::string::npos;
    return says ? 0 : 4;
  }
  return 5;
}
