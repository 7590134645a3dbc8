// Lowering: a Program as StableHLO text. Rules of primitives write through this class; they never
// see each other's names.
#pragma once
#include <fmt/format.h>

#include "core/primitive.h"
#include "core/scoped.h"
#include "core/sharding.h"
#include "core/site_spec.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace postern::internal {

struct Number;

/// A lowered program: its text, the sites that its custom calls name by index, and which inputs of
/// the Program are parameters of main.
struct Module {
  std::string text;
  std::vector<SitePtr> sites;
  std::vector<int> parameters;
  std::vector<int> donated;  // those inputs whose memory the program may reuse
  std::vector<Type> results;

  // A program that XLA cuts for several devices; else `devices` is empty.
  std::vector<int> devices;
  Mesh mesh{{}, {0}};                                        // for what has no sharding of its own
  std::vector<std::optional<Sharding>> parameter_shardings;  // none: all of it on every device
  std::vector<std::optional<Sharding>> result_shardings;     // none: as XLA chooses
  std::vector<std::size_t> result_ends;                      // where the text may say so
  bool partitioned() const { return devices.size() > 1; }

  // Of a module that is to be kept: functions in whose place something better may come, and what
  // they are made of.
  struct Kept {
    std::string function;
    ParamsPtr params;
    std::vector<Type> inputs, outputs;
    std::size_t begin, end;  // in the text
  };
  std::vector<Kept> kept;
};
template <>
struct Described<Module::Kept> {
  using K = Module::Kept;
  static constexpr auto fields =
      std::tuple(field("function", &K::function),
                 transient("params", &K::params),  // each kind of them has fields of its own
                 field("inputs", &K::inputs), field("outputs", &K::outputs),
                 field("begin", &K::begin), field("end", &K::end));
};

/// A value of the module being written.
struct Ssa {
  int id = -1;
};

/// What the compiler of a platform does badly, so that operations write something else for it.
/// platform/ says it of each.
struct CompilerTraits {
  bool slow_windows = false;     // reduce_window recomputes each window: scans become loops
  bool max_loses_nan = false;    // or takes the maxima of floats one by one: integers are used
  bool rounds_products = false;  // of f32 to fewer bits, unless it is told not to
};

/// Returns the text of a module whose parts XLA may put back together, for compilers to which a
/// part is a graph of kernels.
std::string in_one_piece(std::string text);

struct LoweringOptions {
  std::string name = "main";
  std::string platform = {};  // empty: none in particular, the module is kept for all
  CompilerTraits compiler = {};
  std::vector<bool> donated;           // by input
  std::vector<const void*> constants;  // by input: row-major bytes, or null for a parameter
  std::vector<int> devices;            // more than one: XLA cuts the program for these
  Mesh mesh{{}, {0}};
  std::vector<std::optional<Sharding>> inputs, outputs;
  std::size_t gather_limit = 0;  // bytes; 0: none
  std::size_t first_site = 0;    // so many sites has the module that the text is for
};

class Lowering {
 public:
  explicit Lowering(const LoweringOptions& options) : options_(options) {}
  Module module(const Program& program);
  /// Returns the functions written so far, for a module that is there.
  Module functions();

  const std::string& platform() const { return options_.platform; }
  const CompilerTraits& compiler() const { return options_.compiler; }
  std::size_t gather_limit() const { return options_.gather_limit; }

  // Returns the equation's operand or result. Each result must be defined once.
  Ssa operand(const Equation& e, std::size_t i);
  const Type& operand_type(const Equation& e, std::size_t i) const {
    return program_->type(e.operands[i]);
  }
  const Type& result_type(const Equation& e, int i = 0) const {
    return program_->type(e.first + i);
  }
  void define(const Equation& e, int i, Ssa value) { env_[at(e.first + i)] = value; }
  // Returns all operands from one on; all results, of which `values` may have more.
  std::vector<Ssa> operands(const Equation& e, std::size_t from = 0);
  void define_all(const Equation& e, std::span<const Ssa> values) {
    for (int i = 0; i < e.results; ++i) define(e, i, values[at(i)]);
  }

  /// Writes `%r = "hlo"(ins) <attributes> : (in types) -> result`. `attributes` is the inside of
  /// the braces.
  Ssa op(std::string_view hlo, std::initializer_list<Ssa> ins,
         std::initializer_list<const Type*> types, const Type& result,
         std::string_view attributes = "");
  /// Writes the whole equation as one operation on its operands in order.
  void simple(const Equation& e, std::string_view hlo, std::string_view attributes = "");
  /// Returns the attribute, with its comma, by which a product is computed in the dtype of its
  /// operands; empty where it is anyway.
  std::string_view precision_of(const Equation& e, bool highest) const;
  /// Writes a splat constant.
  Ssa constant(std::string_view element, const Type& type);

  /// Returns the number that every element of the operand is known to be, or null.
  const Number* every_element(const Equation& e, std::size_t i) const;

  // Writes freely, for operations with regions: text goes out as it is.
  template <class... A>
  void write(fmt::format_string<A...> format, A&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<A>(args)...);
  }
  Ssa fresh() { return {next_++}; }
  std::vector<Ssa> fresh(std::size_t count) {
    std::vector<Ssa> out;
    while (out.size() < count) out.push_back(fresh());
    return out;
  }
  static std::string type(const Type& type);             // "tensor<2x3xf32>"
  static std::string string(std::string_view text);      // in quotes, what MLIR needs escaped
  static std::string symbol(std::string_view name);      // letters, digits, points; _ for all else
  static std::string list(std::span<const Ssa> values);  // "%1, %2"
  static std::string assigned(std::span<const Ssa> results);  // "%1, %2 = "; of none nothing
  /// Axes from the fastest on, as a tensor of indices; none: row-major.
  static std::string layout(std::int64_t rank, Dims axes = {});
  /// Says that a result of so many is in that operand's memory: of `output_operand_aliases`.
  static std::string alias(int result, int results, int operand);

  /// `{ ^bb0(args): body; stablehlo.return results }`; the body gets its arguments and gives what
  /// it returns, with types.
  struct Typed {
    Ssa value;
    std::string type;
  };
  static std::vector<Typed> typed(std::span<const Ssa> values,
                                  const std::vector<std::string>& types);
  void region(const std::vector<std::string>& argument_types,
              const std::function<std::vector<Typed>(std::span<const Ssa>)>& body);
  /// Writes what a region or function does with its arguments; gives the values that it returns.
  using Body = std::function<std::vector<Ssa>(std::span<const Ssa>)>;

  /// Writes a `while` whose carry has these types: `goes_on` writes its condition, `step` the next
  /// carry, each in a region of its own. Returns the last carry.
  std::vector<Ssa> while_loop(std::span<const Ssa> carry, const std::vector<std::string>& types,
                              const std::function<Ssa(std::span<const Ssa>)>& goes_on,
                              const Body& step);

  /// Writes the equations of a sub-program for these inputs; its outputs.
  std::vector<Ssa> inlined(const Program& program, std::span<const Ssa> inputs);

  // Adds functions beside main: one that `body` writes, and what a call of it gives.
  void function(const std::string& name, const std::vector<Type>& inputs,
                const std::vector<Type>& outputs, const Body& body);
  std::vector<Ssa> called(const std::string& name, std::span<const Ssa> inputs,
                          const std::vector<Type>& input_types,
                          const std::vector<Type>& output_types, std::string_view attributes = "");
  /// Adds functions that are there as text, in which the first one's name, with which the others'
  /// begin, is `placeholder`. Returns the first one's new name.
  std::string written_function(std::string_view text, std::string_view placeholder);
  /// A function that is called once, here; the token of ordered effects goes through it.
  struct Apart {
    const char* name;
    std::vector<Type> inputs, outputs;
    bool ordered = false;
    std::string_view attributes = "";
  };
  std::vector<Ssa> apart(Apart what, std::vector<Ssa> inputs, const Body& body);
  /// Calls a function that calls another with this program, and may do something better when the
  /// module is loaded.
  std::vector<Ssa> kept(ParamsPtr params, const Program& by_default, std::span<const Ssa> inputs);

  // Returns the token. Ordered effects hang on a chain of tokens; regions with ordered effects take
  // the token in and give it back.
  Ssa token();
  void set_token(Ssa token) { token_ = token; }
  static constexpr const char* token_type = "!stablehlo.token";

  /// Adds a site, and returns the index by which a custom call names it.
  std::size_t add_site(SitePtr site);

  // Returns whether an operand may be forwarded. A custom call that hands an operand on as its own
  // result costs no copy only if XLA sees that nothing else reads that memory: the value was made
  // here, is no argument or constant, and nothing before has read it. What comes later reads the
  // result instead.
  bool may_forward(Ssa value) const;
  bool may_forward(const Equation& e, std::size_t i) const {
    return may_forward(env_[at(e.operands[i])]);
  }
  void forward(Ssa value, Ssa result);
  // What a wait gave is handed on by the starts behind it: XLA, which may begin what reads it as
  // soon as it is there, then has the started functions at work first.
  struct Awaited {
    Ssa value;
    Type type;
  };
  void set_awaited(std::vector<Awaited> awaited) { awaited_ = std::move(awaited); }
  /// Returns those that may still be handed on.
  std::vector<Awaited> awaited() const;
  /// Returns what stands for a value now.
  Ssa latest(Ssa value) const;
  /// Returns whether anything reads the equation's result.
  bool needed(const Equation& e, int i) const { return needed_[at(e.first + i)]; }
  /// Sets whether unordered calls take the token too. They do behind an ordered tap whose value
  /// goes on beside it, not through it: only the token then keeps the tap before them.
  void set_token_orders_calls() { token_orders_calls_ = true; }
  bool token_orders_calls() const { return token_orders_calls_; }

  // Returns the devices of a program for several devices: those that it is cut for, and the region
  // in which each works on its own part.
  const std::vector<int>& devices() const { return options_.devices; }
  bool partitioned() const { return options_.devices.size() > 1; }
  /// Returns whether functions are called whose failure on a device leaves zeros, with which the
  /// program goes on: an error from one device would leave the others waiting for it.
  bool leaves_zeros() const { return leaves_zeros_; }
  const Mesh* mesh() const { return mesh_; }
  Ssa axis_index(const std::string& axis) const;
  class MeshRegion {
   public:
    MeshRegion(Lowering& out, const Mesh& mesh, std::vector<Ssa> indices)
        : mesh_(out.mesh_, &mesh), indices_(out.axis_indices_, std::move(indices)) {}

   private:
    Scoped<const Mesh*> mesh_;
    Scoped<std::vector<Ssa>> indices_;
  };
  // Writes a step; returns whether the run goes on, or nothing (-1) if nobody answers. A loop that
  // its devices leave when their run fails asks in each step; the step's first call or tap answers
  // beside its own results.
  Ssa asking(const std::function<void()>& step);
  bool asks() const { return asks_ && answer_.id < 0; }
  void answer(Ssa goes_on) { answer_ = goes_on; }
  /// Returns the channel of one more collective: ", channel_handle = ...".
  std::string channel();
  /// Writes a custom call by which XLA is told how a value lies.
  Ssa sharding_marker(const char* target, Ssa x, const Type& from, const Type& to,
                      std::string_view sharding);
  /// Puts the value where XLA is to have it: "{replicated}", "{devices=[2]0,1}".
  Ssa with_sharding(Ssa x, const Type& type, std::string_view sharding);
  /// Returns what a custom call with an effect says of where it runs: on each device in a
  /// MeshRegion, else on `device` (-1: the first) for all.
  std::string where_it_runs(std::size_t results, int device) const;

 private:
  /// Inside of a region or function, where what the outer one has found out does not hold.
  class Inner {
   public:
    explicit Inner(Lowering& out);

   private:
    Scoped<int> outside_;
    Scoped<Ssa> token_;
    Scoped<std::vector<Awaited>> awaited_;
    Scoped<bool> token_orders_calls_, asks_;
  };
  /// Writes main's parameters; returns the program's inputs, of which constants are not made yet.
  std::vector<Ssa> write_parameters(const Program& program, Module& m);

  void write_results(const Program& program, Module& m);
  void equations(const Program& program);
  void equations(std::span<const Equation> equations);
  void equation(const Equation& e);
  void by_rule(const Equation& e);
  /// Does the same with operands behind what XLA does not see through: all constants, and the first
  /// operand, if it `folds` them wrongly; those of two bits, if it `gathers` them wrongly.
  void by_rule_of_hidden(const Equation& e, bool folds, bool gathers);
  /// Writes a program of many effects as calls of functions; false, and nothing, for another.
  bool in_parts(const Program& program);
  void end_function(std::span<const Ssa> results, const std::vector<Type>& types);
  /// Writes ` = "stablehlo.hlo"(values) {attributes} : (types) -> `.
  template <class Value, class TypeOf>
  void write_operation(std::string_view hlo, std::size_t n, const Value& value,
                       std::string_view attributes, const TypeOf& type_of);
  void mark_read(Ssa value);
  /// What XLA may know of a value. XLA folds what has only constants for operands, by rules that
  /// are not those of its run time: nan is lost in maximum, an integer division by zero ends the
  /// process. So such operations read their operands from behind a barrier.
  struct Known {
    bool constant = false;  // made of numbers alone
    const Number* every = nullptr;
  };
  Known known(const Equation& e, std::size_t i) const;
  void set_known(Ssa value, const Known& known);
  bool folds_wrongly(const Equation& e) const;
  bool gathers_wrongly(const Equation& e) const;
  Ssa bytes_constant(const Type& type, const void* data);

  const LoweringOptions& options_;
  fmt::memory_buffer out_;
  std::string functions_;
  std::vector<Module::Kept> kept_;  // one inside of another comes before it, in the text too
  int blocks_ = 0, parts_ = 0, written_ = 0;
  const Program* program_ = nullptr;
  std::vector<Ssa> env_;
  int next_ = 0;
  Ssa token_;
  std::vector<SitePtr> sites_;
  std::vector<bool> needed_;  // by value of program_
  std::vector<bool> read_;    // by Ssa
  std::vector<Known> known_;  // by Ssa
  std::vector<int> instead_;  // by Ssa: what was handed on, -1 for itself
  int outside_ = 0;           // first Ssa of the current region
  std::vector<Awaited> awaited_;
  bool token_orders_calls_ = false;
  bool asks_ = false;
  Ssa answer_;
  const Mesh* mesh_ = nullptr;
  bool leaves_zeros_ = false;
  std::vector<Ssa> axis_indices_;  // by axis of mesh_
  int channels_ = 0;
};

/// Returns the name of the function that a kept one calls as long as nothing better is there.
inline std::string default_of(const std::string& function) { return function + "_default"; }

}  // namespace postern::internal
