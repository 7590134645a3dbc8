// Loading, starting and cancelling programs, and telling their owners of the end.
#include "programs.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "resource.h"
#include "service.h"
#include "serving.h"
#include "tensors.h"
#include "terms.h"

namespace postern_beam {

namespace {

/// Of a type's text, as f32[512,1024]; none where a size is open, as in f32[-1,3].
std::optional<std::size_t> elements_of(const char* type) {
  std::size_t count = 1;
  const char* at = std::strchr(type, '[');
  while (at && (*at == '[' || *at == ',') && at[1] != ']') {
    char* end = nullptr;
    const auto size = std::strtoll(at + 1, &end, 10);
    if (size < 0) return {};
    count *= static_cast<std::size_t>(size);
    at = end;
  }
  return count;
}

struct Program {
  pn_program* handle;
  bool open = false;               // in some size: the first start of each compiles it
  std::size_t result_bytes = 0;    // at most, but for c128
  std::atomic<bool> ready{false};  // the first start compiles it
  explicit Program(pn_program* p) : handle(p) {
    for (std::size_t i = 0; i < pn_program_inputs(p); ++i)
      open |= !elements_of(pn_program_input(p, i));
    for (std::size_t i = 0; i < pn_program_outputs(p); ++i) {
      const auto elements = elements_of(pn_program_output(p, i));
      open |= !elements;
      result_bytes += sizeof(double) * elements.value_or(0);
    }
    if (open) result_bytes = SIZE_MAX;
  }
  ~Program() { pn_program_free(handle); }
  Program(const Program&) = delete;
};

using Started = std::shared_ptr<pn_started>;

constexpr const char* run_is_over = "the run that it was for is over";

/// Whether the owner of a run was sent the message of its end.
struct EndTold {
  std::mutex guard;  // held until it is sent and written down
  bool sent = false;
};
using Told = std::shared_ptr<EndTold>;

struct Run {
  Started handle;
  std::size_t results;
  bool quick;  // to take the results
  Told told;
  Run(Started s, std::size_t n, bool q, Told t)
      : handle(std::move(s)), results(n), quick(q), told(std::move(t)) {}
  pn_started* get() const { return handle.get(); }
};

/// Whom a run tells of its end and of what it prints. The library holds it as long as it may do so:
/// when the owner ends the run is cancelled, also when no term knows the run any more.
class Listener {
 public:
  /// Without a printer the owner gets what is printed, until it was told of the end.
  Listener(const ErlNifPid& owner, ERL_NIF_TERM reference, const ErlNifPid* printer)
      : env_(enif_alloc_env()),
        reference_(enif_make_copy(env_, reference)),
        owner_(owner),
        printer_(printer ? *printer : owner),
        until_end_(!printer) {}
  ~Listener() { enif_free_env(env_); }
  Listener(const Listener&) = delete;

  void watch(ErlNifEnv* env, const Started& run) {
    {
      const std::scoped_lock lock(guard_);
      if (!over_) run_ = run;
    }
    if (enif_monitor_process(env, this, &owner_, nullptr) != 0) down(env, owner_);
  }
  void down(ErlNifEnv*, const ErlNifPid&) {
    // The lock is not held meanwhile: to cancel ends the run here.
    if (const Started run = taken(false)) pn_started_cancel(run.get());
  }
  void ended() {
    taken(true);
    ErlNifEnv* const env = enif_alloc_env();
    const ERL_NIF_TERM message =
        enif_make_tuple2(env, atoms().ended, enif_make_copy(env, reference_));
    {
      const std::scoped_lock lock(told_->guard);
      enif_send(nullptr, &owner_, env, message);
      told_->sent = true;
    }
    enif_free_env(env);
  }
  const Told& told() const { return told_; }
  /// These end when what the run's asynchronous taps have shown was delivered.
  void ends(std::vector<std::shared_ptr<Service>> services) { shows_ = std::move(services); }
  void delivered() {
    for (const auto& service : std::exchange(shows_, {})) service->end(run_is_over);
  }
  void print(std::string_view text) {
    const std::scoped_lock lock(guard_);  // till it is sent: a cancelled run ends beside its prints
    if (over_ && until_end_) return;
    ErlNifEnv* const env = enif_alloc_env();
    const ERL_NIF_TERM message =
        enif_make_tuple3(env, atoms().print, enif_make_copy(env, reference_), text_term(env, text));
    enif_send(nullptr, &printer_, env, message);
    enif_free_env(env);
  }

 private:
  Started taken(bool over) {
    const std::scoped_lock lock(guard_);
    over_ |= over;
    return over ? std::move(run_) : run_;
  }

  ErlNifEnv* const env_;
  const ERL_NIF_TERM reference_;
  const ErlNifPid owner_;
  const ErlNifPid printer_;
  const bool until_end_;
  const Told told_ = std::make_shared<EndTold>();
  std::mutex guard_;
  Started run_;  // until it is over
  std::vector<std::shared_ptr<Service>> shows_;
  bool over_ = false;
};

ERL_NIF_TERM loaded(ErlNifEnv* env, int code, pn_program* program) {
  if (code != PN_OK) return last_error(env, code);
  // The first use of the library makes the devices: here, where time is allowed.
  std::size_t devices = 0;
  if (const int made = pn_device_count(&devices); made != PN_OK) {
    const ERL_NIF_TERM why = last_error(env, made);
    pn_program_free(program);
    return why;
  }
  return ok(env, term_of(env, Resource<Program>::make(program)));
}

/// A list of what `at` gives until it gives null.
ERL_NIF_TERM texts(ErlNifEnv* env, const pn_program* program,
                   const char* (*at)(const pn_program*, std::size_t)) {
  std::vector<ERL_NIF_TERM> out;
  for (std::size_t i = 0; const char* text = at(program, i); ++i)
    out.push_back(text_term(env, text));
  return enif_make_list_from_array(env, out.data(), static_cast<unsigned>(out.size()));
}

pn_start_options options_of(Listener* listener, int device, std::int64_t deadline_ns) {
  pn_start_options options{};
  options.size = sizeof options;
  options.deadline_ns = deadline_ns;
  options.device = device;
  options.print = [](void* user, const char* text, std::size_t size) {
    static_cast<Listener*>(user)->print({text, size});
  };
  options.ended = [](void* user) { static_cast<Listener*>(user)->ended(); };
  options.release = enif_release_resource;
  options.user = listener;
  return options;
}

/// The functions that a run is given for itself: bridges, with the names that come to them.
class Given {
 public:
  /// Of [{bridge, hooks, functions, how}]; false where it is none.
  bool read(ErlNifEnv* env, ERL_NIF_TERM list) {
    ERL_NIF_TERM head;
    while (enif_get_list_cell(env, list, &head, &list)) {
      const ERL_NIF_TERM* one = nullptr;
      int size = 0;
      if (!enif_get_tuple(env, head, &size, &one) || size != 4) return false;
      const std::shared_ptr<Service> service = service_of(env, one[0]);
      if (!service) return false;
      const bool lasts = enif_is_identical(one[3], atoms().released) != 0;
      const auto last = lasts ? std::make_shared<const RunService>(service) : nullptr;
      if (!lasts) delivered_.push_back(service);
      if (!add(env, one[1], *service, last, hooks_) ||
          !add(env, one[2], *service, last, functions_))
        return false;
    }
    return true;
  }
  void put_into(pn_start_options& options, Listener& listener) {
    options.hooks = hooks_.data();
    options.hook_count = hooks_.size();
    options.functions = functions_.data();
    options.function_count = functions_.size();
    if (delivered_.empty()) return;
    listener.ends(std::move(delivered_));
    options.delivered = [](void* user) { static_cast<Listener*>(user)->delivered(); };
  }
  /// The run has what it was given.
  void started() { users_.clear(); }

  Given() = default;
  ~Given() {
    for (User* user : users_) delete user;
  }
  Given(const Given&) = delete;

 private:
  /// A service of one run, which ends with it.
  struct RunService {
    std::shared_ptr<Service> service;
    explicit RunService(std::shared_ptr<Service> s) : service(std::move(s)) {}
    ~RunService() { service->end(run_is_over); }
  };
  using User = std::shared_ptr<const RunService>;

  bool add(ErlNifEnv* env, ERL_NIF_TERM names, const Service& service, const User& last,
           std::vector<pn_binding>& to) {
    ERL_NIF_TERM head;
    while (enif_get_list_cell(env, names, &head, &names)) {
      if (!enif_is_binary(env, head)) return false;
      names_.push_back(text_of(env, head));
      users_.push_back(new User(last));
      to.push_back({names_.back().c_str(), nullptr, service.bridge(), users_.back(),
                    [](void* user) { delete static_cast<User*>(user); }});
    }
    return true;
  }

  std::deque<std::string> names_;
  std::vector<User*> users_;  // until the run has them
  std::vector<pn_binding> hooks_, functions_;
  std::vector<std::shared_ptr<Service>> delivered_;
};

ERL_NIF_TERM start_now(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  Given given;  // first, since what it has ends also when another is refused
  const bool well = given.read(env, arguments[6]);
  Program* const program = Resource<Program>::get(env, arguments[0]);
  int device = 0;
  ErlNifSInt64 deadline_ns = 0;
  ErlNifPid self, printer;
  if (!well || !program || !enif_is_ref(env, arguments[2]) ||
      !enif_get_int(env, arguments[3], &device) ||
      !enif_get_int64(env, arguments[4], &deadline_ns) || !enif_self(env, &self))
    return enif_make_badarg(env);
  const bool local = enif_get_local_pid(env, arguments[5], &printer) != 0;
  if (!local && !enif_is_atom(env, arguments[5])) return enif_make_badarg(env);
  Arguments tensors;
  if (const int code = tensors.add(env, arguments[1]); code != PN_OK)
    return code < 0 ? enif_make_badarg(env) : last_error(env, code);
  auto* const listener = Resource<Listener>::make(self, arguments[2], local ? &printer : nullptr);
  const Told told = listener->told();
  pn_start_options options = options_of(listener, device, deadline_ns);
  given.put_into(options, *listener);
  pn_started* started = nullptr;
  const int code = pn_start_with(program->handle, tensors.tensors().data(),
                                 tensors.tensors().size(), &options, &started);
  if (code != PN_OK) {
    enif_release_resource(listener);
    return last_error(env, code);
  }
  given.started();
  // On several devices it is another executable.
  const bool sharded = bytes_of(env, arguments[1]) == SIZE_MAX;
  if (!program->open && !sharded) program->ready = true;
  Started run(started, pn_started_free);
  listener->watch(env, run);
  return ok(env,
            term_of(env, Resource<Run>::make(std::move(run), pn_program_outputs(program->handle),
                                             program->result_bytes <= quick_bytes, told)));
}

ERL_NIF_TERM result_now(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  const Run* const run = Resource<Run>::get(env, arguments[0]);
  {
    const std::scoped_lock lock(run->told->guard);
    if (!run->told->sent) return atoms().wait;  // else the message came to who expects none
  }
  std::vector<pn_tensor*> tensors(run->results);
  const int code = pn_started_wait(run->get(), 0, tensors.data());
  if (code == PN_EMPTY) return atoms().wait;
  if (code != PN_OK) return last_error(env, code);
  std::vector<ERL_NIF_TERM> out;
  int failed = PN_OK;
  for (pn_tensor* tensor : tensors) {  // each is taken over, also when one before has failed
    ERL_NIF_TERM term{};
    const bool shards = enif_is_identical(arguments[1], atoms().yes) != 0;
    const int shown = shards ? shards_term(env, tensor, &term) : result_term(env, tensor, &term);
    if (shown != PN_OK) failed = shown;
    out.push_back(term);
  }
  if (failed != PN_OK) return last_error(env, failed);
  return ok(env, enif_make_list_from_array(env, out.data(), static_cast<unsigned>(out.size())));
}

/// Failures that barriers have taken for processes which had ended meanwhile: the next one's.
class Untold {
 public:
  /// What such a barrier gave, with the environment that it is in.
  void keep(ErlNifEnv* env, ERL_NIF_TERM how) {
    const std::scoped_lock lock(guard_);
    kept_.emplace_back(env, how);
  }
  /// The first of them, or that all is well.
  ERL_NIF_TERM take(ErlNifEnv* env) {
    const std::scoped_lock lock(guard_);
    if (kept_.empty()) return atoms().ok;
    const auto [own, how] = kept_.front();
    kept_.pop_front();
    const ERL_NIF_TERM out = enif_make_copy(env, how);
    enif_free_env(own);
    return out;
  }

 private:
  std::mutex guard_;
  std::deque<std::pair<ErlNifEnv*, ERL_NIF_TERM>> kept_;
};
Untold& untold() {
  static Untold* const one = new Untold;  // barriers may go on after the statics have ended
  return *one;
}

/// On a thread of its own: a barrier may take as long as a program, and as many may be waited for
/// as there are processes. It can't be called off: who waits for it no more still has a thread.
void tell_barrier(std::int64_t limit_ns, ErlNifPid who, ErlNifEnv* env, ERL_NIF_TERM reference) {
  const int code = pn_barrier(limit_ns);
  const bool failed = code != PN_OK && code != PN_EMPTY;
  ERL_NIF_TERM how = atoms().wait;
  if (code != PN_EMPTY) how = failed ? last_error(env, code) : untold().take(env);
  const ERL_NIF_TERM message = enif_make_tuple3(env, atoms().barrier, reference, how);
  const bool told = enif_send(nullptr, &who, env, message) != 0;
  if (!told && enif_is_tuple(env, how))
    untold().keep(env, how);
  else
    enif_free_env(env);
}

}  // namespace

ERL_NIF_TERM configure(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  int devices = 0;
  if (!enif_get_int(env, arguments[0], &devices)) return enif_make_badarg(env);
  const std::string plugin = text_of(env, arguments[1]), cache = text_of(env, arguments[2]);
  for (const std::string& text : {plugin, cache})
    if (is_cut_short(text)) return cut_short(env, text);
  const int code = pn_configure(devices, plugin.c_str(), cache.c_str());
  return code == PN_OK ? atoms().ok : last_error(env, code);
}

ERL_NIF_TERM device_count(ErlNifEnv* env, int, const ERL_NIF_TERM[]) {
  std::size_t count = 0;
  const int code = pn_device_count(&count);
  return code == PN_OK ? ok(env, enif_make_uint64(env, count)) : last_error(env, code);
}

ERL_NIF_TERM load_file(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  pn_program* program = nullptr;
  const std::string file = text_of(env, arguments[0]);
  if (is_cut_short(file)) return cut_short(env, file);
  const int code = pn_load_file(file.c_str(), &program);
  return loaded(env, code, program);
}

ERL_NIF_TERM load_library(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  const std::string file = text_of(env, arguments[0]);
  if (is_cut_short(file)) return cut_short(env, file);
  const int code = pn_load_library(file.c_str());
  return code == PN_OK ? atoms().ok : last_error(env, code);
}

ERL_NIF_TERM load_text(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  pn_program* program = nullptr;
  const std::string text = text_of(env, arguments[0]);
  const int code = pn_load_text(text.data(), text.size(), &program);
  return loaded(env, code, program);
}

ERL_NIF_TERM program_info(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  const Program* const program = Resource<Program>::get(env, arguments[0]);
  if (!program) return enif_make_badarg(env);
  return enif_make_tuple4(env, texts(env, program->handle, pn_program_input),
                          texts(env, program->handle, pn_program_output),
                          texts(env, program->handle, pn_program_function),
                          texts(env, program->handle, pn_program_hook));
}

ERL_NIF_TERM start(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]) {
  const Program* const program = Resource<Program>::get(env, arguments[0]);
  if (program && program->ready && bytes_of(env, arguments[1]) <= quick_bytes)
    return start_now(env, count, arguments);
  return enif_schedule_nif(env, "start", ERL_NIF_DIRTY_JOB_CPU_BOUND, start_now, count, arguments);
}

ERL_NIF_TERM result(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]) {
  const Run* const run = Resource<Run>::get(env, arguments[0]);
  if (!run) return enif_make_badarg(env);
  if (run->quick) return result_now(env, count, arguments);
  // Copied where the memory is a device's. That waits for the device, not for those who compile.
  return enif_schedule_nif(env, "result", ERL_NIF_DIRTY_JOB_IO_BOUND, result_now, count, arguments);
}

ERL_NIF_TERM cancel(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  const Run* const run = Resource<Run>::get(env, arguments[0]);
  if (!run) return enif_make_badarg(env);
  const int code = pn_started_cancel(run->get());
  return code == PN_OK ? atoms().ok : last_error(env, code);
}

ERL_NIF_TERM barrier(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  ErlNifSInt64 limit_ns = 0;
  ErlNifPid self;
  if (!enif_get_int64(env, arguments[0], &limit_ns) || !enif_is_ref(env, arguments[1]) ||
      !enif_self(env, &self))
    return enif_make_badarg(env);
  ErlNifEnv* const own = enif_alloc_env();
  const ERL_NIF_TERM reference = enif_make_copy(own, arguments[1]);
  try {
    std::thread(tell_barrier, limit_ns, self, own, reference).detach();
  } catch (const std::system_error& e) {
    enif_free_env(own);
    return error(env, PN_RESOURCE_EXHAUSTED, std::string("barrier got no thread: ") + e.what());
  }
  return atoms().ok;
}

bool open_programs(ErlNifEnv* env) {
  return Resource<Program>::open(env, "postern_program") &&
         Resource<Run>::open(env, "postern_run") &&
         Resource<Listener>::open(env, "postern_listener");
}

}  // namespace postern_beam
