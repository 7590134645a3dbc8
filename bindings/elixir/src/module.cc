// The module Postern.Nif, as the BEAM loads it.
#include <erl_nif.h>

#include <vector>

#include "programs.h"
#include "resource.h"
#include "serving.h"
#include "tensors.h"
#include "terms.h"

namespace postern_beam {
namespace {

int load(ErlNifEnv* env, void**, ERL_NIF_TERM) {
  if (pn_version() < PN_C_VERSION) return 1;
  make_atoms(env);
  return open_tensors(env) && open_programs(env) && open_serving(env) ? 0 : 1;
}
// Objects of the module's old version are taken over.
int upgrade(ErlNifEnv* env, void** data, void**, ERL_NIF_TERM info) {
  return load(env, data, info);
}

/// () -> [{kind, count}] of the objects that terms, runs and calls still hold.
ERL_NIF_TERM alive_now(ErlNifEnv* env, int, const ERL_NIF_TERM[]) {
  std::vector<ERL_NIF_TERM> out;
  for (const auto& [kind, count] : alive())
    out.push_back(
        enif_make_tuple2(env, enif_make_atom(env, kind.data()), enif_make_long(env, count)));
  return enif_make_list_from_array(env, out.data(), static_cast<unsigned>(out.size()));
}

constexpr unsigned dirty = ERL_NIF_DIRTY_JOB_CPU_BOUND;
ErlNifFunc functions[] = {{"configure", 3, configure, dirty},
                          {"device_count", 0, device_count, dirty},
                          {"load_library", 1, load_library, dirty},
                          {"load_file", 1, load_file, dirty},
                          {"load_text", 1, load_text, dirty},
                          {"program_info", 1, program_info, 0},
                          {"start", 7, start, 0},
                          {"result", 2, result, 0},
                          {"cancel", 1, cancel, 0},
                          {"barrier", 2, barrier, 0},
                          {"alive", 0, alive_now, 0},
                          {"address", 1, address, 0},
                          {"bridge_new", 1, bridge_new, 0},
                          {"bridge_serve", 3, bridge_serve, 0},
                          {"bridge_serves", 2, bridge_serves, 0},
                          {"bridge_next", 2, bridge_next, 0},
                          {"bridge_end", 1, bridge_end, 0},
                          {"request_info", 1, request_info, 0},
                          {"request_results", 1, request_results, 0},
                          {"request_assign", 2, request_assign, 0},
                          {"request_put", 4, request_put, 0},
                          {"request_reply", 2, request_reply, 0},
                          {"request_fail", 4, request_fail, 0},
                          {"request_held", 1, request_held, 0},
                          {"request_stopped", 1, request_stopped, 0}};

}  // namespace
}  // namespace postern_beam

using namespace postern_beam;
ERL_NIF_INIT(Elixir.Postern.Nif, functions, load, nullptr, upgrade, nullptr)
