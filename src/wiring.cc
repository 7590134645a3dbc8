// Above all rooms: where an interface of one is tied to others further down that implement it.
// Constants, and not registrations at start-up, which a static library would drop.
#include "block/target.h"
#include "cluster/cluster.h"
#include "host/process_call.h"
#include "host/residual_store.h"
#include "platform/nodes.h"
#include "run/evaluator.h"
#include "run/library.h"
#include "run/residual_store.h"
#include "site/own_functions.h"
#include "site/processes.h"
#include "site/residual_store.h"

namespace postern::internal {

constinit const Evaluator evaluator{run::evaluate_equation, run::evaluate_program};
constinit const Elsewhere elsewhere{run::call_on_device, run::trace_for_device};

constinit const ResidualAccess residual_access{
    write_residuals,     read_residuals, free_residuals, run::write_residuals,
    run::read_residuals, run::owner_of,  run::keep_owned};
constinit const ProcessAccess process_access{at_processes};
constinit const OwnFunctions own_functions{host::residual_function, host::process_function};

namespace clusters {

constinit const ClusterAccess cluster_access{platforms::join_of_cluster};

}  // namespace clusters

namespace blocks {

constinit const HandlerAccess handler_access{run::require_handler};

}  // namespace blocks

}  // namespace postern::internal
