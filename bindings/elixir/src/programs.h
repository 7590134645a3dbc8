// The NIFs of programs and runs.
#pragma once
#include <erl_nif.h>

namespace postern_beam {

using Nif = ERL_NIF_TERM(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

/// (cpu_devices, plugin, cache_dir) -> :ok
Nif configure;
/// () -> {:ok, count}
Nif device_count;
/// (path) -> :ok
Nif load_library;
/// (path) -> {:ok, program}
Nif load_file;
/// (text) -> {:ok, program}
Nif load_text;
/// (program) -> {inputs, outputs, functions, hooks}
Nif program_info;
/// (program, tensors, ref, device, deadline_ns, printer, given) -> {:ok, run}. The caller gets
/// {:postern_ended, ref}; when it ends before, the run is cancelled. The printer, a pid, gets
/// {:postern_print, ref, text}; for :owner the caller does, and never after the end. `given`, a
/// list of {bridge, hooks, functions, until}: what of this run comes to a bridge, by name, which
/// then ends. :released, when nothing of the run can come any more, also when this fails;
/// :delivered, behind the run's end, when what its asynchronous taps have shown was delivered.
Nif start;
/// (run, shards) -> {:ok, tensors}; with `true` each is [{device, tensor}], of what each device
/// has. :wait while the run goes on.
Nif result;
/// (run) -> :ok
Nif cancel;

/// (limit_ns, ref) -> :ok. The caller gets {:postern_barrier, ref, :ok}; :wait for :ok when the
/// limit passes, or an error.
Nif barrier;

bool open_programs(ErlNifEnv* env);

}  // namespace postern_beam
