// Above all rooms: where an interface of one is tied to others further down that implement it.
// Constants, and not registrations at start-up, which a static library would drop.
#include "block/overrides.h"
#include "block/target.h"
#include "host/loop_tape.h"
#include "host/process_call.h"
#include "linalg/open_lapack.h"
#include "run/evaluator.h"
#include "run/library.h"
#include "run/loop_tape.h"
#include "site/loop_tape.h"
#include "site/own_functions.h"
#include "site/processes.h"

namespace postern::internal {

constinit const Evaluator evaluator{run::evaluate_equation, run::evaluate_program};

constinit const LoopTapeAccess loop_tape_access{write_tapes,      read_tapes,      free_tapes,
                                                run::write_tapes, run::read_tapes, run::tapes_of,
                                                run::keep_tapes};
constinit const ProcessAccess process_access{at_processes};
constinit const OwnFunctions own_functions{host::loop_tape_function, host::process_function};

namespace blocks {

constinit const HandlerAccess handler_access{run::require_handler};
constinit const OwnOverrides own_overrides{linear_algebra::open_lapack_for_block};

}  // namespace blocks

}  // namespace postern::internal
