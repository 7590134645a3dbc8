// What can be shown of a function that is jitted: its program, its text, what XLA made of it.
#include <postern/program.h>

#include <ostream>

#include "core/check.h"
#include "core/lists.h"
#include "core/text.h"
#include "platform/platform.h"
#include "run/compiled.h"
#include "transform/walk.h"

namespace postern {
using namespace internal;

namespace {

void collect_effects(const Program& program, bool in_loop, std::vector<EffectInfo>& out) {
  for (const Equation& e : program.equations) {
    if (e.primitive->site) {
      const SiteSpec& s = *e.primitive->site(e.params.get());
      if (s.effect != Effect::pure)
        out.push_back(
            {word_of(s.kind), {s.name, s.place}, s.effect, in_loop || !s.batch.levels.empty()});
    }
    if (!e.params) continue;
    for (const ProgramPtr& p : programs_of(*e.params))
      collect_effects(*p, in_loop || e.primitive->loops(), out);
  }
}

}  // namespace

std::string to_string(const std::vector<StageInfo>& stages) {
  std::string out;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageInfo& s = stages[i];
    out += fmt::format("{} {}", i, s.kind);
    if (!s.name.empty()) out += fmt::format(" '{}'", s.name);
    if (s.kind == "xla") out += fmt::format(" of {}", plural(size_of(s.equations), "operation"));
    if (s.device >= 0) out += fmt::format(" on device {}", s.device);
    out += fmt::format(": {} -> {}\n    {}\n", to_string(s.inputs), to_string(s.outputs), s.reason);
  }
  return out;
}

std::string TracedProgram::text(const std::string& platform, Place place) const {
  PlaceScope at(place);
  return to_string(*program_, std::string(platforms::named(platform, "text").name));
}
std::vector<Type> TracedProgram::inputs() const { return program_->input_types(); }
std::vector<Type> TracedProgram::outputs() const { return program_->output_types(); }
std::size_t TracedProgram::equations() const { return program_->equations.size(); }
std::vector<EffectInfo> TracedProgram::effects() const {
  std::vector<EffectInfo> out;
  collect_effects(*program_, false, out);
  return out;
}
void TracedProgram::verify(Place place) const {
  PlaceScope at(place);
  postern::internal::verify(*program_);
}
std::string to_string(const TracedProgram& program) { return program.text(); }
std::ostream& operator<<(std::ostream& out, const TracedProgram& program) {
  return out << program.text();
}

const std::string& Lowered::stablehlo() const { return module_->text; }
std::vector<Type> Lowered::outputs() const { return program_->output_types(); }

std::string Executable::optimized() const {
  if (!compiled_)
    throw Error(ErrorCode::unimplemented,
                "optimized: the plug-in calls no functions, so the program runs in stages; each of "
                "Jitted::stages is a program of its own");
  return compiled_->executable().optimized_program().code;
}
std::int64_t Executable::temporary_bytes() const {
  try {
    return compiled_ ? compiled_->executable().memory_stats().temporaries : -1;
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace postern
