// An application that begins MPI itself and has messages of its own under way while programs run,
// and that ends MPI before its last run: that run fails, and nothing aborts.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <postern/postern.h>

#include <cstdio>

namespace pn = postern;

int main(int argc, char** argv) {
  int level = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto total = pn::jit(pn::shard_map([](pn::Tensor v) { return pn::psum(v, "host"); },
                                           pn::Mesh({{"host", pn::processes}})));
  const pn::ClusterInfo cluster = pn::cluster();
  if (cluster.rank != rank || cluster.size != size) return 1;
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
