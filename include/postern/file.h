// Saved programs: a compiled function as a file that runs elsewhere, without its source, with
// whatever host functions are registered there.
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/jit_core.h>
#include <postern/program.h>
#include <postern/tap.h>
#include <postern/type.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace postern {

namespace detail {
struct LoadedProgram;
}

/// A place where a saved program calls back.
struct SavedSite {
  std::string kind;      // "call", "tap", "hook", "print"
  std::string name;      // of the call or tap
  std::string function;  // that it calls, by its registered name; a print has none
  Attributes attributes;
  std::vector<Type> operands, results;  // of one firing
  Effect effect;
  Place place;  // in the source that it was written in
};

struct SaveOptions {
  /// How the file names the lines that sites stand at. No path in it is absolute.
  enum class Places : std::uint8_t { relative, none } places = Places::relative;
  /// Source files in this folder are named by their path from it, others by their name alone;
  /// empty: the working directory.
  std::filesystem::path root = {};
};

/// Writes the program: StableHLO text, and in comments before it types, sites and a checksum.
/// Functions must be `Named`: closures are a TypeError that lists them, and so are prints to
/// streams of this process but std::cout and std::cerr. Blocks are kept with their defaults, so
/// that the file runs on any platform, and take an override of the process that loads it where one
/// accepts when it first runs; captured tensors are written out. Throws Error(unavailable) when the
/// file cannot be written.
POSTERN_API void save(const std::filesystem::path& file, const Lowered& program,
                      const SaveOptions& options = {}, Place place = Place::current());
/// Returns the same as text. Throws TypeError as `save` does.
///
///   pn::register_function("twice", [](pn::View<const float> x, pn::View<float> y) {
///     for (std::int64_t i = 0; i < x.size(); ++i) y[i] = 2 * x[i];
///   });
///   const pn::Type type = pn::type<float>({2});
///   auto f = pn::jit([type](pn::Tensor x) { return pn::call(type, pn::Named{"twice"}, x); });
///   const pn::Loaded g = pn::load_text(pn::saved_text(f.lower(pn::abstract(type))));
///   const pn::Tensor y = g(pn::tensor<float>({1, 2})).at(0);  // [2 4]
[[nodiscard]] POSTERN_API std::string saved_text(const Lowered& program,
                                                 const SaveOptions& options = {},
                                                 Place place = Place::current());

/// An operation of a program from a file, as the patterns of `with_tap` and its like find it.
struct LoadedOperation {
  /// The path of scopes and functions around it, as JAX names them, "jit(predict)/layer_3/tanh",
  /// those of the calls that lead to it in front; "" where the file says none.
  std::string name;
  std::string operation;      // "stablehlo.tanh"; of what calls with whom, "func.call @relu"
  std::vector<Type> results;  // but for tokens; an extent that is open is -1
  bool constant;              // the same whatever the arguments are
  Place place;  // the text's line; of artifacts the line that was exported, where it is known
};

/// A program from a file. Copies share it. Compiled when it is first run. Several threads may run
/// one at once. No member throws but those that run it.
///
/// Given arguments that lie on several devices, one of a single device runs on them, as a jitted
/// function does. While a function is traced, running one writes its operations into the trace: so
/// it can be differentiated, batched, and be part of other programs. Throws Error(unimplemented)
/// there for one over several devices.
class Loaded {
 public:
  explicit Loaded(std::shared_ptr<const detail::LoadedProgram> program)
      : program_(std::move(program)) {}

  /// Returns the leaves of the arguments and of the results, in order. An extent that is open is
  /// -1: the program takes any.
  POSTERN_API const std::vector<Type>& inputs() const;
  POSTERN_API const std::vector<Type>& outputs() const;
  /// Returns their names, as many: "args[0]['w']" and "result['loss']" of what JAX exported, what
  /// its text calls them, "x" of `%x` in other text; "" where the file says none.
  POSTERN_API const std::vector<std::string>& input_names() const;
  POSTERN_API const std::vector<std::string>& output_names() const;
  POSTERN_API const std::vector<SavedSite>& sites() const;
  /// Returns the names of the host functions that it calls, sorted, each once.
  POSTERN_API std::vector<std::string> required_functions() const;
  /// Returns the module as text; in VHLO where it came from a portable artifact.
  POSTERN_API const std::string& stablehlo() const;

  /// Returns the operations in the order in which they stand, those of a function where it is
  /// called. Throws what opening the program throws inside of another, and
  /// Error(resource_exhausted) for more than a million.
  POSTERN_API std::vector<LoadedOperation> operations(Place place = Place::current()) const;

  /// Returns the same program with the results of each operation that matches shown to `fn`, which
  /// takes an optional `const TapInfo&` and the results as leaves; constants are not shown.
  /// `options` are those of a tap; its name is the operation's, or what kind it is where it has no
  /// name. The program is then compiled as one that was traced.
  ///
  /// A pattern is the end of a name from one of its parts on ("tanh", "layer_3/tanh"), a kind of
  /// operation ("stablehlo.tanh", "tanh", "@relu" for calls of that function), or a line
  /// ("model.py:12", ":12" of a text); `*` stands for anything, also for several parts, and `?` for
  /// a character. Throws TypeError when no operation matches, and what `operations` throws.
  [[nodiscard]] POSTERN_API Loaded with_tap(const std::string& pattern, Callee fn,
                                            const TapOptions& options = {}) const;
  /// Does so with a hook in place of a tap: whoever runs the program decides what listens, by
  /// RunOptions::hooks, live.h, or the live page. Throws the same.
  [[nodiscard]] POSTERN_API Loaded with_hook(const std::string& pattern,
                                             const TapOptions& options = {.live = true},
                                             Place place = Place::current()) const;
  /// Returns the same program with `fn` of the operands in place of each operation that matches:
  /// traced, it gives as many results of the same types. Throws the same; where the program is
  /// traced, TypeError for other results.
  [[nodiscard]] POSTERN_API Loaded with_replacement(
      const std::string& pattern, std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
      Place place = Place::current()) const;

  /// Compiles now what the first run compiles else: nothing where sizes are open or
  /// something was changed. Throws CompileError, and what running throws for a program that cannot
  /// run here.
  POSTERN_API void compile(Place place = Place::current()) const;

  /// Runs with these arguments, containers allowed, and gives the results' leaves. Functions are
  /// looked up when the run starts; one that is not registered is a CallbackError (unregistered)
  /// that names it. Throws TypeError when the arguments are not of the program's types, and
  /// Error(failed_precondition) when the program is over more devices than the process has.
  template <class... A>
  std::vector<Tensor> operator()(const A&... arguments) const {
    return run(detail::leaves_of(detail::as_tree(arguments)...), Place{});
  }
  POSTERN_API std::vector<Tensor> run(const std::vector<Tensor>& arguments,
                                      Place place = Place::current()) const;
  /// Does the same with a deadline, a context, a stream or functions of its own, and waits until
  /// what it started has ended; throws what `run` of a jitted function throws for them.
  POSTERN_API std::vector<Tensor> run(const std::vector<Tensor>& arguments,
                                      const RunOptions& options,
                                      Place place = Place::current()) const;
  /// Starts a run on a host thread and returns at once. Throws TypeError for arguments that are not
  /// of the program's types and options out of range; what operator() throws otherwise is the run's
  /// failure.
  POSTERN_API Run<std::vector<Tensor>> start(const std::vector<Tensor>& arguments,
                                             const RunOptions& options = {},
                                             Place place = Place::current()) const;

  const std::shared_ptr<const detail::LoadedProgram>& internal() const { return program_; }

 private:
  std::shared_ptr<const detail::LoadedProgram> program_;
};

struct LoadOptions {
  /// The function that is wanted, of a module that has several; empty: @main, or the only one that
  /// is public.
  std::string entry = {};
};

/// Reads what `save` wrote, or programs from elsewhere: StableHLO text, artifacts of `jax.export`,
/// portable artifacts. Throws Error: not_found or unavailable when there is no such file, data_loss
/// when it was changed or cut, invalid_argument when it is no program, unimplemented when it needs
/// what a later version may know or what cannot be run here; PluginError when it is from elsewhere
/// and the library that reads such programs (packages/import) is missing.
POSTERN_API Loaded load(const std::filesystem::path& file, Place place = Place::current());
/// Does so with another function than @main; throws Error(not_found) where there is none such.
POSTERN_API Loaded load(const std::filesystem::path& file, const LoadOptions& options,
                        Place place = Place::current());
/// Loads from text; `name` is for errors. Throws as `load` does, but for files.
POSTERN_API Loaded load_text(std::string_view text, const std::string& name = "text",
                             Place place = Place::current());
POSTERN_API Loaded load_text(std::string_view text, const std::string& name,
                             const LoadOptions& options, Place place = Place::current());

}  // namespace postern
