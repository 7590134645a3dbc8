// Above all rooms: where an interface of one is tied to another further down that implements it.
// A constant, and not a registration at start-up, which a static library would drop.
#include "run/evaluator.h"

namespace postern {

constinit const Evaluator evaluator{run::evaluate_equation, run::evaluate_program};

}  // namespace postern
