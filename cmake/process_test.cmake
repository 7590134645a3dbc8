# process_test(NAME COUNT COMMAND...): a test that runs so many processes of a command in one
# cluster; skipped, with the reason, where there is no MPI.
find_program(MPIRUN mpirun)
# More processes than cores, which they leave to others while they wait; as root; on this machine
# alone, also in a container.
set(process_environment POSTERN_CLUSTER=$<TARGET_FILE:postern_mpi> POSTERN_CPU_DEVICES=2
                OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
                OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
                PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # since Open MPI 5
                OMPI_MCA_plm=isolated OMPI_MCA_btl=self,vader
                OMPI_MCA_btl_vader_single_copy_mechanism=none)
function(process_test name count)
  if(NOT TARGET postern_mpi OR NOT MPIRUN)
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "no MPI: scripts/bootstrap --mpi")
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "no MPI: ")
    return()
  endif()
  add_test(NAME ${name} COMMAND ${MPIRUN} -n ${count} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 PROCESSORS 2
                                          ENVIRONMENT "${process_environment}")
endfunction()
