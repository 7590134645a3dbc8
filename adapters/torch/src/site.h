// A call of a torch function in a program: what its host functions have in common.
#pragma once
#include <postern/torch.h>

#include "derive.h"
#include "kept.h"

namespace postern::torch {

struct Site {
  Site(const Options& o, const Function& f, std::vector<Type> operands, std::vector<Type> results);

  Options options;
  Function fn;
  std::vector<Type> in, out;  // of one element
  Movable movable;
  bool own_vmap;  // torch's
  std::shared_ptr<Kept> kept;
  std::shared_ptr<Learned> learned = std::make_shared<Learned>();

  const Erased& erased() const { return *fn.erased(); }
};
using SitePtr = std::shared_ptr<const Site>;

/// The function's entry. `keep`: for a derivative; its last result is then a ticket.
Callee host_function(SitePtr site, bool keep);
/// The entry of a derivative, whose last operand is the ticket. `in`, `out`: the types of one
/// element.
Callee host_derivative(SitePtr site, Path path, std::vector<Type> in, std::vector<Type> out);

}  // namespace postern::torch
