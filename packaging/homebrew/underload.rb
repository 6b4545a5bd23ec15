# A formula for Homebrew, which builds from source: a tap's Formula/underload.rb. It has not been run: there
# is no release yet, so `sha256` is that of an archive of the tag, which the publisher fills in.
class Underload < Formula
  desc "Measures, explains and fixes latency under load"
  homepage "https://github.com/underload/underload"
  url "https://github.com/underload/underload/archive/refs/tags/v0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["Apache-2.0", "MIT"]
  head "https://github.com/underload/underload.git", branch: "main"

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/cli")
    generate_completions_from_executable(bin/"underload", "completions")
    system bin/"underload", "--quiet", "man", "man"
    man1.install Dir["man/*"]
  end

  test do
    system bin/"underload", "run", "home/cable", "--world", "sim", "--short", "--out", "first"
    assert_predicate testpath/"first/report.html", :exist?
  end
end
