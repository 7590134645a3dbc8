// What is shown as it is: images and texts.
#include <algorithm>
#include <map>

#include "png.h"
#include "shown.h"
#include "spi.h"
#include "summary.h"

namespace postern {
using namespace internal;

namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = i; k < i + 3; ++k)
      three = three << 8 | (k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : digits[three >> (18 - 6 * k) & 63];
  }
  return out;
}

struct Texts {
  static constexpr std::size_t most = 256, longest = 1 << 16;
  Mutex guard;
  std::map<std::string, host::ShownText> all;
  std::uint64_t changes = 0;
};
Texts& texts() {
  static Texts* const t = new Texts;  // shown until the process has ended
  return *t;
}

}  // namespace

namespace listen {

struct ImagesState {
  ~ImagesState() { Instances<ImagesState>::all().leave(this); }
  Mutex guard;
  std::vector<host::Pictured> entries;
  const std::uint64_t number = Instances<ImagesState>::all().enter(this);
};

Images::Images() : state_(std::make_shared<ImagesState>()) {}

void Images::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    auto last = std::make_shared<const host::Images>(
        host::images_of("images", host::leaf_name(info.name, host::path_of(info, i)), leaves[i]));
    std::scoped_lock lock(state_->guard);
    host::Pictured& e = host::entry_of(state_->entries, info, i);
    e.last = std::move(last);
    ++e.firings;
  }
}

void show_text(const std::string& name, const std::string& text) {
  Texts& t = texts();
  std::scoped_lock lock(t.guard);
  t.all.erase(name);
  ++t.changes;
  if (!text.empty() && t.all.size() < Texts::most)
    t.all[name] = {name, text.substr(0, Texts::longest), t.changes};
}

}  // namespace listen

namespace internal::host {

std::vector<std::string> image_urls(const Images& images) {
  constexpr std::size_t most_samples = 1 << 24;
  if (images.samples.size() > most_samples) return {};
  std::vector<std::string> out = images.files();
  for (std::string& file : out) file = "data:image/png;base64," + base64(file);
  return out;
}

std::vector<ShownText> shown_texts() {
  std::vector<ShownText> out;
  std::scoped_lock lock(texts().guard);
  for (const auto& [name, text] : texts().all) out.push_back(text);
  return out;
}

void each_image(const std::function<void(EntryOf, const Pictured&)>& f) {
  Instances<listen::ImagesState>::all().each([&](listen::ImagesState& s, std::uint64_t number) {
    std::scoped_lock lock(s.guard);
    for (std::size_t i = 0; i < s.entries.size(); ++i) f({number, i}, s.entries[i]);
  });
}

}  // namespace internal::host
}  // namespace postern
