// One text, compiled for the lanes of a platform as they are needed.
#include <algorithm>

#include "core/cache.h"
#include "core/lists.h"
#include "core/log.h"
#include "host/timeline.h"
#include "run/compiled.h"
#include "run/disk_cache.h"
#include "run/failures.h"

namespace postern::internal::run {

const pjrt::Executable& CompiledText::in_form(int form) {
  const auto index = static_cast<std::size_t>(form);
  if (index < few) [[likely]]
    if (const pjrt::Executable* e = ready_[index].load(std::memory_order_acquire)) [[likely]]
      return *e;
  std::scoped_lock lock(guard_);
  const pjrt::Executable& e = in_form_locked(form);
  if (index < few) ready_[index].store(&e, std::memory_order_release);
  return e;
}

// The main form comes first; the others take over what was compiled for it, where that can be
// serialized, or load what was kept on disk for it.
const pjrt::Executable& CompiledText::in_form_locked(int form) {
  pjrt::Executable& its = executables_[form];
  if (its) return its;
  const auto number = size_of(std::max(form - any_spare_device + 1, 0));  // 0: the main client's
  const pjrt::Client& client = backend_->clients[number];
  const pjrt::CompileOptions options{.portable = form != first_device};
  const pjrt::CompileOptions of_main{.portable = form_of_main() != first_device};
  const bool differ = options.portable != of_main.portable;
  const host::timeline::Compiling compiling(host::timeline::module_name(text_));
  const Compilation here;
  const pjrt::Executable& main = executables_[form_of_main()];  // may be what is asked for
  try {
    if (main) its = client.deserialize(main.serialize(), differ ? &options : nullptr);
  } catch (const Error& e) {
    log(LogLevel::info, "a program is loaded or compiled again: {}", e.what());
  }
  if (!its) its = compile_or_load(*backend_, number, text_, options, differ ? &of_main : nullptr);
  return its;
}

CompiledText::Form CompiledText::form_of_main() const {
  if (backend_->platform().names_no_device) return first_device;
  return any_device;
}
const pjrt::Executable& CompiledText::main() { return in_form(form_of_main()); }

CompiledText::Choice CompiledText::on(const Lane& lane) {
  int form = any_device;
  if (lane.client > 0) {
    form = any_spare_device + lane.client - 1;
  } else if (lane.index == backend_->first_device) {
    form = form_of_main();
  }
  return {in_form(form), form == first_device ? nullptr : &lane.handle};
}

std::shared_ptr<CompiledText> compiled_text(const std::string& text, const Backend& backend) {
  static auto* const cache = new Cache<CompiledText>(texts_kept);
  const auto make = [&] { return std::make_shared<CompiledText>(text, backend); };
  std::shared_ptr<CompiledText> code;
  if (backend.number == 0)
    code = cache->find(text, make);
  else
    code = cache->find(fmt::format("{} of platform {}", text, backend.number), make);
  code->main();
  return code;
}

}  // namespace postern::internal::run
