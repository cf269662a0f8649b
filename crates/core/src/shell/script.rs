//! The shell text of the file operations: POSIX `sh` and POSIX tools, and where a tool is younger (`base64`, `stat -c`), a way
//! without it.
//!
//! Every script runs in a fresh `sh` with an empty environment and a fixed `PATH`: what the spec's variables, a login
//! profile or the working directory plant has no part in it (S41). Every path is absolute or starts with `./`, so
//! none is taken for an option (LD-11), and reaches the script through `printf`, so that every byte of it survives
//! whatever carries the command.

use crate::file::GuestPath;
use crate::shell::frame::Nonce;

/// Bytes of shell text that one chunk of content may take, so that a script stays below the 128 KiB that Linux takes for
/// one argument, with two paths of full length beside it (BD-07).
pub(super) const CHUNK_TEXT_BYTES: usize = 60 << 10;

const SETUP: &str = r#"
set -f
nl='
'
end() { printf '\n%s end %s\n' "$n" "$*"; exit "$1"; }
# Ends with the status that an error text of a tool stands for; in this locale all of them end alike.
fail() {
  case $1 in
  *': Permission denied' | *': Operation not permitted' | *': Read-only file system') end 71 ;;
  *': Not a directory' | *': File exists') end 70 ;;
  *': No such file or directory' | *': Too many levels of symbolic links' | *': File name too long') end 66 ;;
  *': Is a directory') end 67 ;;
  *': No space left on device' | *'uota exceeded') end 72 ;;
  esac
  printf '%s\n' "$1" >&2
  end 74
}
# Looks at what $p leads to: its inode, size and time, which tell one state of a file from another.
look() {
  m=$(ls -Lnid "$p" 2>&1) || fail "$m"
  set -- $m
  type=$2 size=$6 stamp="$1 $6 $7 $8 $9"
}
regular() {
  look
  case $type in
  d*) end 67 ;;
  l*) end 66 ;;
  -*) [ -r "$p" ] || end 71 ;;
  *) end 68 ;;
  esac
}
if command -v base64 >/dev/null 2>&1; then
  encoding=base64
  encode() { base64; }
else
  encoding=hex
  encode() { od -An -v -tx1 | tr -d ' \n'; }
fi
broken() { printf '%s broken\n' "$n" >&2; }
"#;

const SIZE: &str = r#"
regular
end 0 "$stamp"
"#;

const READ: &str = r#"
regular
[ "$size" -le "$limit" ] || end 69 "$stamp"
printf '\n%s begin %s %s\n' "$n" "$encoding" "$stamp"
{ head -c "$((limit + 1))" "$p" || broken; } | encode
look
end 0 "$stamp"
"#;

const SLICE: &str = r#"
regular
printf '\n%s begin %s %s\n' "$n" "$encoding" "$stamp"
{ dd if="$p" bs="$slice" skip="$skip" count=1 2>/dev/null || broken; } | encode
look
end 0 "$stamp"
"#;

/// A name's bytes go out as they are; the empty name, which no entry has, ends the names of a batch, and one line
/// for each follows: mode and size, or where `stat` failed, a letter.
const LIST: &str = r#"
look
case $type in
d*) ;;
l*) end 66 ;;
*) end 70 ;;
esac
cd -P "$p" 2>/dev/null || end 71
[ -r . ] || end 71
printf '\n%s begin\n' "$n"
find . ! -name . -prune -exec sh -c '
printf "%s\0" "$@" ""
if m=$(stat -c "%f %s" "$@" 2>/dev/null); then
  printf "%s\n" "$m"
else
  for f do
    if [ -L "$f" ]; then echo l
    elif [ -d "$f" ]; then echo d
    elif [ -f "$f" ]; then echo f
    elif [ -e "$f" ]; then echo o
    else echo -; fi
  done
fi
printf "\0"
' sh {} +
end 0 $?
"#;

/// Follows symbolic links as the kernel would, creates the parents, goes to the directory of the target and creates the
/// temporary file in it. Leaves $f and $t relative to that directory.
const WRITE_BEGIN: &str = r#"
hops=0
while [ -L "$p" ]; do
  hops=$((hops + 1))
  [ "$hops" -le 40 ] || end 66
  target=$(readlink "$p" && printf .) || end 66
  target=${target%.}
  target=${target%"$nl"}
  case $target in
  /*) p=$target ;;
  *) p=${p%/*}/$target ;;
  esac
done
case $p in
*/ | */. | */..) end 67 ;;
esac
if [ -d "$p" ]; then end 67; fi
m=$(mkdir -p "${p%/*}/" 2>&1) || fail "$m"
cd -P "${p%/*}/" 2>/dev/null || end 71
f=./${p##*/}
t=./.ringfence.$n
check() {
  if [ -d "$f" ]; then end 67; fi
  if [ -e "$f" ]; then
    [ -f "$f" ] || end 68
    [ -w "$f" ] || end 71
  fi
}
check
trap 'rm -f "$t"' 0
trap 'exit 74' 1 2 13 15
m=$( { set -C; : >"$t"; } 2>&1) || fail "$m"
"#;

const WRITE_HAND_OVER: &str = r#"
trap - 0
printf '\n%s begin %s\n' "$n" "$encoding"
printf '%s\0%s' "$PWD" "$f" | encode
end 0
"#;

const WRITE_FROM_STDIN: &str = r#"
m=$(cat 2>&1 >"$t") || fail "$m"
"#;

const WRITE_RESUME: &str = r#"
cd -P "$p" 2>/dev/null || end 66
if [ -L "$t" ] || ! [ -f "$t" ]; then end 66; fi
"#;

/// Puts the temporary file in the place of the target, with the target's owner, as far as that is allowed, and its mode
/// without set-id bits, which the kernel clears on every write as well.
const WRITE_END: &str = r#"
m=$(wc -c <"$t") || end 74
[ "$((m))" -eq "$size" ] || end 73
if [ -e "$f" ]; then
  m=$(ls -Lnd "$f" 2>&1) || fail "$m"
  set -- $m
  chown "$3:$4" "$t" 2>/dev/null
  mode=$(printf '%s\n' "$1" | sed 's/^.\(...\)\(...\)\(...\).*/u=\1,g=\2,o=\3/;s/[-ST]//g;s/[st]/x/g')
  m=$(chmod "$mode" "$t" 2>&1) || fail "$m"
fi
if [ -d "$f" ]; then end 67; fi
m=$(mv -f "$t" "$f" 2>&1) || fail "$m"
trap - 0
end 0
"#;

/// Text for the sandbox's shell, and what marks its answer.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) nonce: Nonce,
    body: String,
}

impl Script {
    fn new() -> Self {
        let nonce = Nonce::new();
        let body = format!("n={}{SETUP}", nonce.to_shell());
        Self { nonce, body }
    }

    pub(super) fn size(path: &GuestPath) -> Self {
        Self::new().bytes("p", &operand(path)).text(SIZE)
    }

    pub(super) fn read(path: &GuestPath, limit: u64) -> Self {
        Self::new().bytes("p", &operand(path)).number("limit", limit).text(READ)
    }

    pub(super) fn slice(path: &GuestPath, slice: u64, index: u64) -> Self {
        Self::new().bytes("p", &operand(path)).number("slice", slice).number("skip", index).text(SLICE)
    }

    pub(super) fn list(path: &GuestPath) -> Self {
        Self::new().bytes("p", &operand(path)).text(LIST)
    }

    /// Writes what comes on standard input.
    pub(super) fn write_from_stdin(path: &GuestPath, size: u64) -> Self {
        Self::new()
            .bytes("p", &operand(path))
            .number("size", size)
            .text(WRITE_BEGIN)
            .text(WRITE_FROM_STDIN)
            .text(WRITE_END)
    }

    /// Writes content that fits into one chunk.
    pub(super) fn write_chunk(path: &GuestPath, size: u64, chunk: &str) -> Self {
        Self::new()
            .bytes("p", &operand(path))
            .number("size", size)
            .text(WRITE_BEGIN)
            .append(chunk)
            .text(WRITE_END)
    }

    /// Begins a write in several commands; answers with the absolute directory and the name of the target in it.
    pub(super) fn write_begin(path: &GuestPath) -> Self {
        Self::new().bytes("p", &operand(path)).text(WRITE_BEGIN).text(WRITE_HAND_OVER)
    }

    pub(super) fn write_append(staged: &Staged, chunk: &str) -> Self {
        Self::new().resume(staged).append(chunk).text("end 0\n")
    }

    pub(super) fn write_end(staged: &Staged, size: u64) -> Self {
        Self::new().resume(staged).bytes("f", &staged.file).number("size", size).text(WRITE_END)
    }

    pub(super) fn write_abandon(staged: &Staged) -> Self {
        Self::new().resume(staged).text("rm -f \"$t\"\nend 0\n")
    }

    fn resume(self, staged: &Staged) -> Self {
        self.bytes("p", &staged.directory)
            .text(&format!("t=./.ringfence.{}", staged.nonce.as_str()))
            .text(WRITE_RESUME)
    }

    fn append(self, chunk: &str) -> Self {
        self.text(&format!("m=$(printf '{chunk}' | cat 2>&1 >>\"$t\") || fail \"$m\"\n"))
    }

    fn text(mut self, text: &str) -> Self {
        self.body.push_str(text);
        self
    }

    fn number(self, variable: &str, number: u64) -> Self {
        self.text(&format!("{variable}={number}\n"))
    }

    /// Sets a variable to exact bytes; the dot keeps final newlines from being stripped.
    fn bytes(self, variable: &str, bytes: &[u8]) -> Self {
        let (literal, rest) = printf_format(bytes, usize::MAX);
        debug_assert!(rest.is_empty());
        self.text(&format!("{variable}=$(printf '{literal}.')\n{variable}=${{{variable}%.}}\n"))
    }

    /// Returns the command: a clean shell in the place of the one that reads this. Elsewhere `exec` passes by functions; in zsh
    /// it would start a profile's.
    pub(super) fn command(&self) -> String {
        let body = self.body.replace('\'', r"'\''");
        format!(
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin; export PATH; unset -f env 2>/dev/null; \
             exec env -i PATH=\"$PATH\" LC_ALL=C sh -c '{body}'"
        )
    }
}

/// A write that was begun: where its temporary file lies and whose place it will take.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) nonce: Nonce,
    pub(super) directory: Vec<u8>,
    pub(super) file: Vec<u8>,
}

/// A path that no tool takes for an option.
fn operand(path: &GuestPath) -> Vec<u8> {
    let prefix: &[u8] = if path.is_absolute() { b"" } else { b"./" };
    [prefix, path.as_bytes()].concat()
}

/// Writes bytes as a single-quoted `printf` format of at most `max_text` bytes; returns it and what did not fit. Plain
/// text stays itself and is cheaper than in base64, and nothing but `printf` is needed to read it back.
pub(super) fn printf_format(bytes: &[u8], max_text: usize) -> (String, &[u8]) {
    let mut format = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let plain = match byte {
            b'\'' | b'\\' | b'%' => false,
            // First in the format, it would start an option.
            b'-' => at > 0,
            b' '..=b'~' | b'\n' => true,
            _ => false,
        };
        if format.len() + if plain { 1 } else { 4 } > max_text {
            return (format, &bytes[at..]);
        }
        if plain {
            format.push(char::from(*byte));
        } else {
            format.push_str(&format!("\\{byte:03o}"));
        }
    }
    (format, &[])
}
