// What jit can show of a function without running it: the traced program, its StableHLO, its
// compiled form.
#pragma once
#include <postern/call.h>
#include <postern/detail/api.h>
#include <postern/type.h>

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace postern {

namespace internal {
struct Program;
struct Module;
namespace run {
class CompiledProgram;
}
}  // namespace internal

/// An effect of a program, as written in the source.
struct EffectInfo {
  std::string kind;  // "call", "tap", "hook", "print"; "operation" of trace::non_finite
  Site site;
  Effect effect;
  bool in_loop;  // may fire any number of times
};

/// A part of a program that is cut into stages, in the order in which they run.
struct StageInfo {
  std::string kind;  // "xla": one compiled program; "call", "tap", "hook", "print", "operation": a
                     // host function; "call_on_device": a function called on another device;
                     // "while", "scan", "cond": driven from the host, the programs inside staged
                     // in their turn
  std::string name;  // of a host function
  Place place;
  int equations;  // that it does
  std::vector<Type> inputs, outputs;
  int device = -1;  // of an XLA stage, where JitOptions::stage_device says, and of such a call; -1:
                    // the program's
  std::string reason = {};  // why it is a stage of its own, or why there is but one
};
/// Returns a line for each: number, kind, what it does, and the reason. Throws nothing.
POSTERN_API std::string to_string(const std::vector<StageInfo>& stages);

/// An operation of a program that is cut into stages.
struct StageNode {
  std::string_view operation;  // as the program prints it: "dot_general", "block", "tap"
  Place place;
  std::vector<Type> inputs, outputs;
};
/// before: what it reads comes from earlier stages. after: who reads its results is in later ones.
/// both: it is a stage by itself.
enum class Cut : std::uint8_t { none, before, after, both };

/// A traced function. Prints as one line for each equation: results with types, operation,
/// parameters, operands, place; of a block also whether lowering will take its default or which
/// override. Shown to several threads at once, as Lowered and Executable are. No member throws but
/// `text` and `verify`.
class TracedProgram {
 public:
  explicit TracedProgram(std::shared_ptr<const internal::Program> program)
      : program_(std::move(program)) {}
  /// Returns it as it prints, with what blocks become on that platform: "cpu", "cuda"; others are a
  /// TypeError.
  POSTERN_API std::string text(const std::string& platform = "cpu",
                               Place place = Place::current()) const;
  /// Returns the types of its inputs and results, and its number of steps.
  POSTERN_API std::vector<Type> inputs() const;  // arguments' leaves, then captured tensors
  POSTERN_API std::vector<Type> outputs() const;
  POSTERN_API std::size_t equations() const;
  POSTERN_API std::vector<EffectInfo> effects()
      const;  // calls, taps, hooks and prints that are not pure, in program order
  /// Checks that values are made before they are used and that types follow from the rules; throws
  /// TypeError naming equation and rule.
  POSTERN_API void verify(Place place = Place::current()) const;
  const std::shared_ptr<const internal::Program>& internal() const { return program_; }

 private:
  std::shared_ptr<const internal::Program> program_;
};
/// Returns its text, as for "cpu". They throw nothing.
POSTERN_API std::string to_string(const TracedProgram& program);
POSTERN_API std::ostream& operator<<(std::ostream& out, const TracedProgram& program);

namespace detail {
struct OpenProgram;
}

/// A program as StableHLO text, ready for XLA; of open sizes that of some sizes. May be read by
/// several threads at once. No member throws.
class Lowered {
 public:
  Lowered(std::shared_ptr<const internal::Module> module,
          std::shared_ptr<const internal::Program> program, std::vector<Tensor> captures)
      : module_(std::move(module)), program_(std::move(program)), captures_(std::move(captures)) {}
  /// Returns the text; the types of the results' leaves; what else it was made of.
  POSTERN_API const std::string& stablehlo() const;
  POSTERN_API std::vector<Type> outputs() const;
  const std::shared_ptr<const internal::Module>& internal() const { return module_; }
  const std::vector<Tensor>& captures() const {
    return captures_;
  }  // values of the program's last inputs
  TracedProgram program() const { return TracedProgram(program_); }
  /// Returns how it is made at other sizes, where some are open (see `any`); else null.
  const std::shared_ptr<const detail::OpenProgram>& open() const { return open_; }
  Lowered with_open(std::shared_ptr<const detail::OpenProgram> open) const {
    Lowered out = *this;
    out.open_ = std::move(open);
    return out;
  }

 private:
  std::shared_ptr<const detail::OpenProgram> open_;
  std::shared_ptr<const internal::Module> module_;
  std::shared_ptr<const internal::Program> program_;
  std::vector<Tensor> captures_;
};

/// A compiled program, kept alive by this handle too. May be asked by several threads at once.
class Executable {
 public:
  explicit Executable(std::shared_ptr<const internal::run::CompiledProgram> compiled)
      : compiled_(std::move(compiled)) {}
  /// Returns XLA's optimised program in the form that the plug-in gives: text, or (XLA's own
  /// plug-ins) a serialized HloModuleProtoWithConfig. Throws the plug-in's Error where it gives
  /// none, Error(unimplemented) where the program has host functions and the plug-in calls none: it
  /// then runs in stages.
  POSTERN_API std::string optimized() const;
  /// Returns bytes XLA plans to use for temporaries; -1 where the plug-in does not tell, or the
  /// program runs in stages. Throws nothing.
  POSTERN_API std::int64_t temporary_bytes() const;
  const std::shared_ptr<const internal::run::CompiledProgram>& internal() const {
    return compiled_;
  }

 private:
  std::shared_ptr<const internal::run::CompiledProgram> compiled_;
};

}  // namespace postern
