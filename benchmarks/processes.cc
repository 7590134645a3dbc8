// Programs over processes: mpirun is in here.
#include <cstdlib>
#include <string>

#include "harness.h"

namespace bench {

#ifdef POSTERN_BENCH_PROCESSES
namespace {

/// So many ranks on this machine alone, also in a container and as root.
std::string mpirun(int ranks, const std::string& command) {
  return "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated "
         "OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none "
         "OMPI_MCA_rmaps_base_oversubscribe=1 "
         "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "
         "POSTERN_CLUSTER='" POSTERN_BENCH_TRANSPORT "' '" POSTERN_BENCH_MPIRUN "' -n " +
         std::to_string(ranks) + " " + command;
}

bool has_mpi4jax(const std::string& python) {
  return !python.empty() &&
         std::system(("'" + python + "' -c 'import mpi4jax' 2>/dev/null").c_str()) == 0;
}

}  // namespace

void processes(Report& report) {
  const std::string side = "'" POSTERN_BENCH_PROCESSES "'";
  report.add_output_of(mpirun(1, side));
  report.add_output_of(mpirun(2, side));
  report.add_output_of("POSTERN_CLUSTER_MEMORY=0 " + mpirun(2, side));
  if (has_mpi4jax(report.jax_python()))
    report.add_output_of(mpirun(
        2, "'" + report.jax_python() + "' '" POSTERN_BENCH_FOLDER "/processes/mpi4jax_side.py'"));
  else
    report.add({.name = "processes/mpi4jax",
                .value = 0,
                .unit = "ns",
                .note = "not measured: the Python of --jax has no mpi4jax"});
}
#else
void processes(Report& report) {
  report.add({.name = "processes",
              .value = 0,
              .unit = "ns",
              .note = "not measured: no MPI, see scripts/bootstrap --mpi"});
}
#endif

}  // namespace bench
