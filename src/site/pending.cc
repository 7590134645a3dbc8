// start_call and wait: a call as two sites with a handle between them.
#include <postern/pending.h>

#include "custom/custom.h"
#include "site/site.h"
#include "trace/trace.h"

namespace postern {
using namespace internal;

using detail::Access, detail::Started, detail::TracedValue;

namespace {

const Type scalar_handle{DType::u64, {}};

/// Throws TypeError where it shows while tracing that a handle cannot be waited for here. It must
/// be of the program that is traced or, with no loop between, of one around that.
void check_handle(const Site& started, const Tensor& handle, const Place& place) {
  const auto who = [&] {
    return fmt::format("wait: the call '{}' that was started at {}", started.name,
                       to_string(started.place));
  };
  Trace* const here = Trace::current();
  const TracedValue* const traced = Access::traced(handle);
  check(here || !traced, "{} is part of a program, and nothing is being traced here", who());
  if (!here) return;
  if (traced) {
    const Trace* home = here;
    while (home && home->mark() != traced->mark.get()) home = home->outer();
    check(home, "{} is of another program ({}) than the one that waits for it", who(),
          traced->mark->what);
    for (const Trace* t = here; t != home; t = t->outer())
      check(t->mark()->what != "body" && t->mark()->what != "condition",
            "{} is waited for in each step of a loop that does not carry it", who());
  } else {
    for (const Trace* t = here; t; t = t->outer())
      check(t->mark()->what != "jit", "{} is not of the program that waits for it", who());
  }
  Place& before = here->waited(handle);
  check(!before.known(), "{} has been waited for before, at {}: its results are given once", who(),
        to_string(before));
  before = place;
}

Tensors wait_site(const std::string& name, const Tensor& handle, const Types& out,
                  const Place& place) {
  SiteSpec s;
  s.name = name;
  s.place = place;
  s.call.role = SiteCall::Role::wait;
  s.effect = Effect::unordered;
  s.operands = {scalar_handle};
  for (const Type& t : out) s.results.push_back({t.dtype, t.dims});
  return at_site(std::move(s), {&handle, 1});
}

/// Waits with the derivative that the call was given. `pending`: the handle, then the operands of
/// the call, by which its rule makes cotangents of them; the handle has none.
Tensors wait_with_vjp(const Started& started, const Tensors& pending, const Types& out,
                      const Place& place) {
  auto run = [started, out, place](TensorSpan leaves) {
    return wait_site(started.site.name, leaves[0], out, place);
  };
  auto forward = [started, out, place](TensorSpan leaves) {
    Tensors results = wait_with_vjp(started, Tensors(leaves.begin(), leaves.end()), out, place);
    auto rule = host_cotangents(started.options, *started.vjp, leaves.size() - 1, out.size());
    auto backward = [rule = std::move(rule)](TensorSpan kept) {
      Tensors ct = rule(kept);
      ct.insert(ct.begin(), Tensor());  // the handle's
      return ct;
    };
    Tensors residuals = joined({leaves.subspan(1), results});
    return detail::Forward{std::move(results), std::move(residuals), std::move(backward)};
  };
  return detail::custom_vjp(run, detail::ForwardRule(forward), pending, place);
}

}  // namespace

Tensor detail::start_call(const CallOptions& options, const Types& out,
                          const std::string& structure, const std::vector<std::string>& paths,
                          const Callee& fn, const Tensors& operands) {
  PlaceScope at(fn.place());
  check(options.memory == Memory::host,
        "start_call '{}': the function works on copies of its operands, which a call with "
        "Memory::device does not make",
        options.name);
  check(!options.partitioned,
        "start_call '{}': the option partitioned is for call; inside shard_map each device starts "
        "a call of its own",
        options.name);
  SiteSpec s = call_site(options, out, structure, paths, fn, operands);
  s.call.role = SiteCall::Role::start;
  s.call.later = std::move(s.results);
  s.results = {scalar_handle};
  if (s.effect == Effect::pure) s.effect = Effect::unordered;  // it runs, whoever waits
  return at_site(std::move(s), operands).front();
}

Tensors detail::wait_call(const Started* started, const Tensors& pending, const Types& out,
                          const Place& place) {
  PlaceScope at(place);
  check(started && pending[0].has_value(),
        "wait: the Pending is empty, no call was started for it");
  const std::string& name = started->site.name;
  const Type& type = pending[0].type();
  check(type.dtype == scalar_handle.dtype && type.dims.empty(),
        "wait: the Pending of '{}' has handles of type {}: each must be waited for by itself, as "
        "in vmap",
        name, to_string(type));
  check_handle(started->site, pending[0], place);
  if (started->vjp) return wait_with_vjp(*started, pending, out, place);
  return wait_site(name, pending[0], out, place);
}

}  // namespace postern
