// Bridges, requests and the memory of operands as objects of the VM.
#include "serving.h"

#include <algorithm>
#include <cstring>

#include "resource.h"
#include "service.h"
#include "tensors.h"
#include "terms.h"

namespace postern_beam {

namespace {

ERL_NIF_TERM answer(ErlNifEnv* env, const Outcome& outcome) {
  if (outcome.code == PN_OK) return atoms().ok;
  if (outcome.code == PN_EMPTY) return atoms().held;
  return error(env, outcome.code, outcome.text);
}

/// The owner's: with it the service ends. Lives in the VM's memory, at one place.
struct Bridge {
  std::shared_ptr<Service> service;
  ErlNifPid owner{};
  ErlNifEnv* const env = enif_alloc_env();
  ERL_NIF_TERM message;

  Bridge(std::shared_ptr<Service> s, ErlNifEnv* caller, ERL_NIF_TERM reference)
      : service(std::move(s)),
        message(enif_make_tuple2(env, atoms().ready, enif_make_copy(env, reference))) {
    enif_self(caller, &owner);
    pn_bridge_notify(service->bridge(), tell, this);
  }
  Bridge(const Bridge&) = delete;
  ~Bridge() {
    end(owner_has_ended);
    enif_free_env(env);
  }
  void down(ErlNifEnv*, const ErlNifPid&) { end(owner_has_ended); }
  void end(const char* text) {
    // The VM allows no sending from here, and nobody waits who does not know.
    pn_bridge_notify(service->bridge(), nullptr, nullptr);
    service->end(text);
  }

 private:
  static constexpr const char* owner_has_ended = "the process that served it has ended";
  /// On the thread that calls, which is none of the VM's.
  static void tell(void* self) {
    const auto& bridge = *static_cast<Bridge*>(self);
    enif_send(nullptr, &bridge.owner, nullptr, bridge.message);
  }
};

/// What may answer. Gone unanswered, nobody can.
struct Request {
  std::shared_ptr<Open> open;
  explicit Request(std::shared_ptr<Open> o) : open(std::move(o)) {}
  ~Request() { open->fail(PN_CLOSED, "the request was let go of without an answer"); }
  void down(ErlNifEnv*, const ErlNifPid&) {
    open->fail(PN_CLOSED, "the process that was to answer has ended");
  }
};

/// Held by each binary over an operand's memory.
struct Lease {
  std::shared_ptr<Open> open;
  explicit Lease(std::shared_ptr<Open> o) : open(std::move(o)) { open->lend(); }
  ~Lease() { open->give_back(); }
};

Open* open_of(ErlNifEnv* env, ERL_NIF_TERM term) {
  Request* const request = Resource<Request>::get(env, term);
  return request ? request->open.get() : nullptr;
}

/// The operands of a request that was taken: those of fewer bytes are copied.
ERL_NIF_TERM taken_now(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  const std::shared_ptr<Open>& open = Resource<Request>::get(env, arguments[0])->open;
  ErlNifUInt64 copy_below = 0;
  enif_get_uint64(env, arguments[1], &copy_below);
  const auto copied = [&](const pn_array& a) { return a.bytes < copy_below || a.bytes == 0; };
  bool lends = false;
  open->with_firing([&](const pn_firing& f) {
    lends = !std::all_of(f.operands, f.operands + f.operand_count, copied);
  });
  Lease* const lease = lends ? Resource<Lease>::make(open) : nullptr;
  std::vector<ERL_NIF_TERM> out;
  // The owner may be killed meanwhile.
  const bool there = open->with_firing([&](const pn_firing& f) {
    for (std::size_t i = 0; i < f.operand_count; ++i) {
      const pn_array& operand = f.operands[i];
      const std::string_view bytes(static_cast<const char*>(operand.data), operand.bytes);
      out.push_back(tensor_term(
          env, operand,
          copied(operand) ? text_term(env, bytes)
                          : enif_make_resource_binary(env, lease, bytes.data(), bytes.size())));
    }
  });
  if (lease) enif_release_resource(lease);
  if (!there) return error(env, PN_CLOSED, "the bridge that serves this function is closed");
  return enif_make_tuple3(
      env, atoms().ok, arguments[0],
      enif_make_list_from_array(env, out.data(), static_cast<unsigned>(out.size())));
}

/// The results of a reply: tensors, or binaries of the bytes of the declared types.
bool read_results(ErlNifEnv* env, ERL_NIF_TERM list, Open& open, std::vector<TensorTerm>& out) {
  ERL_NIF_TERM head;
  while (enif_get_list_cell(env, list, &head, &list)) {
    TensorTerm tensor;
    if (enif_inspect_binary(env, head, &tensor.data))
      open.with_firing([&](const pn_firing& f) {
        const std::size_t i = out.size();
        if (i >= f.result_count) return;
        tensor.dtype = f.results[i].dtype;
        tensor.dims.assign(f.results[i].dims, f.results[i].dims + f.results[i].rank);
      });
    else if (!TensorTerm::read(env, head, tensor))
      return false;
    out.push_back(std::move(tensor));
  }
  return true;
}

ERL_NIF_TERM reply_now(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Open* const open = open_of(env, arguments[0]);
  if (!open) return enif_make_badarg(env);
  if (enif_is_atom(env, arguments[1])) return answer(env, open->reply(nullptr));
  std::vector<TensorTerm> tensors;
  if (!read_results(env, arguments[1], *open, tensors)) return enif_make_badarg(env);
  std::vector<pn_array> arrays;
  for (const TensorTerm& tensor : tensors) arrays.push_back(tensor.array());
  return answer(env, open->reply(&arrays));
}

/// Where iodata goes: the bytes of a result from an offset on.
ERL_NIF_TERM put_now(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Open* const open = open_of(env, arguments[0]);
  ErlNifUInt64 index = 0, offset = 0;
  ErlNifBinary bytes;
  if (!open || !enif_get_uint64(env, arguments[1], &index) ||
      !enif_get_uint64(env, arguments[2], &offset) ||
      !enif_inspect_iolist_as_binary(env, arguments[3], &bytes))
    return enif_make_badarg(env);
  Outcome done;
  const bool there = open->with_firing([&](const pn_firing& f) {
    const std::size_t room = index < f.result_count ? f.results[index].bytes : 0;
    if (offset > room || bytes.size > room - offset)
      done = {PN_BAD_RESULT, "result " + std::to_string(index) + " has " + std::to_string(room) +
                                 " bytes, " + std::to_string(bytes.size) + " were put at byte " +
                                 std::to_string(offset)};
    else if (bytes.size > 0)
      std::memcpy(static_cast<char*>(f.results[index].data) + offset, bytes.data, bytes.size);
  });
  if (!there) done = {PN_NOT_FOUND, "the request was answered already"};
  return answer(env, done);
}

ERL_NIF_TERM fail_now(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Open* const open = open_of(env, arguments[0]);
  if (!open || !enif_is_atom(env, arguments[1])) return enif_make_badarg(env);
  Cause cause = no_cause();
  if (!enif_is_identical(arguments[3], atoms().none)) cause.reset(keep_cause(env, arguments[3]));
  return answer(
      env, open->fail(code_of(env, arguments[1]), text_of(env, arguments[2]), std::move(cause)));
}

}  // namespace

ERL_NIF_TERM bridge_new(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  if (!enif_is_ref(env, arguments[0])) return enif_make_badarg(env);
  pn_bridge* made = nullptr;
  if (const int code = pn_bridge_create(&made); code != PN_OK) return last_error(env, code);
  Bridge* const bridge = Resource<Bridge>::make(std::make_shared<Service>(made), env, arguments[0]);
  enif_monitor_process(env, bridge, &bridge->owner, nullptr);
  return ok(env, term_of(env, bridge));
}

ERL_NIF_TERM bridge_serve(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Bridge* const bridge = Resource<Bridge>::get(env, arguments[0]);
  if (!bridge || !enif_is_binary(env, arguments[1])) return enif_make_badarg(env);
  const bool replace = enif_is_identical(arguments[2], atoms().yes) != 0;
  const std::string name = text_of(env, arguments[1]);
  if (is_cut_short(name)) return cut_short(env, name);
  return answer(env, bridge->service->serve(name, replace));
}

ERL_NIF_TERM bridge_serves(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  const Bridge* const bridge = Resource<Bridge>::get(env, arguments[0]);
  if (!bridge) return enif_make_badarg(env);
  return enif_make_atom(env,
                        bridge->service->serves(text_of(env, arguments[1])) ? "true" : "false");
}

ERL_NIF_TERM bridge_next(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Bridge* const bridge = Resource<Bridge>::get(env, arguments[0]);
  ErlNifUInt64 copy_below = 0;
  if (!bridge || !enif_get_uint64(env, arguments[1], &copy_below)) return enif_make_badarg(env);
  std::shared_ptr<Open> open;
  const Outcome came = bridge->service->next(open);
  if (came.code == PN_EMPTY) return atoms().wait;
  if (came.code != PN_OK) return error(env, came.code, came.text);
  std::size_t copied = 0;
  open->with_firing([&](const pn_firing& f) {
    for (std::size_t i = 0; i < f.operand_count; ++i)
      if (f.operands[i].bytes < copy_below) copied += f.operands[i].bytes;
  });
  const ERL_NIF_TERM request = term_of(env, Resource<Request>::make(std::move(open)));
  const ERL_NIF_TERM taken[] = {request, arguments[1]};
  if (copied <= quick_bytes) return taken_now(env, 2, taken);
  return enif_schedule_nif(env, "bridge_next", ERL_NIF_DIRTY_JOB_CPU_BOUND, taken_now, 2, taken);
}

ERL_NIF_TERM bridge_end(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Bridge* const bridge = Resource<Bridge>::get(env, arguments[0]);
  if (!bridge) return enif_make_badarg(env);
  bridge->end("the bridge that serves this function is closed");
  return atoms().ok;
}

ERL_NIF_TERM request_info(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Open* const open = open_of(env, arguments[0]);
  if (!open) return enif_make_badarg(env);
  ERL_NIF_TERM out;
  const bool there = open->with_firing([&](const pn_firing& f) {
    std::vector<ERL_NIF_TERM> place;
    for (std::size_t i = 0; i < f.coordinate_count; ++i)
      place.push_back(enif_make_int64(env, f.coordinates[i]));
    out = enif_make_tuple8(
        env, text_term(env, f.function), text_term(env, f.site), text_term(env, f.attributes),
        enif_make_int(env, f.device), enif_make_uint64(env, f.run), enif_make_int64(env, f.element),
        enif_make_atom(env, f.asynchronous ? "true" : "false"),
        enif_make_list_from_array(env, place.data(), static_cast<unsigned>(place.size())));
  });
  return there ? ok(env, out) : error(env, PN_NOT_FOUND, "the request was answered already");
}

ERL_NIF_TERM request_results(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Open* const open = open_of(env, arguments[0]);
  if (!open) return enif_make_badarg(env);
  std::vector<ERL_NIF_TERM> types;
  const bool there = open->with_firing([&](const pn_firing& f) {
    for (std::size_t i = 0; i < f.result_count; ++i) {
      const auto dtype = static_cast<std::size_t>(f.results[i].dtype);
      types.push_back(enif_make_tuple2(env, atoms().dtypes[dtype], shape_term(env, f.results[i])));
    }
  });
  if (!there) return error(env, PN_NOT_FOUND, "the request was answered already");
  return ok(env, enif_make_list_from_array(env, types.data(), static_cast<unsigned>(types.size())));
}

ERL_NIF_TERM request_assign(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Request* const request = Resource<Request>::get(env, arguments[0]);
  ErlNifPid pid;
  if (!request || !enif_get_local_pid(env, arguments[1], &pid)) return enif_make_badarg(env);
  if (enif_monitor_process(env, request, &pid, nullptr) != 0) request->down(env, pid);
  return atoms().ok;
}

ERL_NIF_TERM request_put(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]) {
  ErlNifBinary bytes;
  const bool quick = enif_inspect_binary(env, arguments[3], &bytes) && bytes.size <= quick_bytes;
  if (quick) return put_now(env, count, arguments);
  return enif_schedule_nif(env, "request_put", ERL_NIF_DIRTY_JOB_CPU_BOUND, put_now, count,
                           arguments);
}

ERL_NIF_TERM request_reply(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]) {
  if (bytes_of(env, arguments[1]) <= quick_bytes) return reply_now(env, count, arguments);
  return enif_schedule_nif(env, "request_reply", ERL_NIF_DIRTY_JOB_CPU_BOUND, reply_now, count,
                           arguments);
}

ERL_NIF_TERM request_fail(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]) {
  if (enif_is_identical(arguments[3], atoms().none)) return fail_now(env, count, arguments);
  // How large a cause is nobody knows before it was copied.
  return enif_schedule_nif(env, "request_fail", ERL_NIF_DIRTY_JOB_CPU_BOUND, fail_now, count,
                           arguments);
}

ERL_NIF_TERM request_held(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Open* const open = open_of(env, arguments[0]);
  if (!open) return enif_make_badarg(env);
  return enif_make_atom(env, open->held() ? "true" : "false");
}

ERL_NIF_TERM request_stopped(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Open* const open = open_of(env, arguments[0]);
  if (!open) return enif_make_badarg(env);
  return enif_make_atom(env, open->stopped() ? "true" : "false");
}

std::shared_ptr<Service> service_of(ErlNifEnv* env, ERL_NIF_TERM term) {
  const Bridge* const bridge = Resource<Bridge>::get(env, term);
  return bridge ? bridge->service : nullptr;
}

bool open_serving(ErlNifEnv* env) {
  return Resource<Bridge>::open(env, "postern_bridge") &&
         Resource<Request>::open(env, "postern_request") &&
         Resource<Lease>::open(env, "postern_lease");
}

}  // namespace postern_beam
