//! Files that an independent encoder made with the secret `bufferbloat`, and how to write bytes.

#![allow(dead_code, reason = "each test program uses its own part")]

use underload_docsis::mic::Secret;

/// Buffer Control and AQM in both directions.
pub const BUFFER_CONTROL: &str = "
    030101
    1838 01020001 060107 080400989680 09040000a000 1b0400b71b00
         2312 010400002000 02040000c800 030400020000 2809 010100 02010a 030101
    1931 01020002 060107 0406647331303000 080405f5e100 090400000be4 1b0407270e00
         2306 020400100000 2806 010100 02010f
    120104 44020032 4c0100
    0610602d569e3ac66976ffc2a692f15b94d5 07101d9b2cbbc921d65b928ee0e33a3fc754 ff 00";

/// Low Latency DOCSIS settings, without the MICs. It has no downstream flow.
pub const LOW_LATENCY: &str = "
    030101 1614 010101 03020002 050140 060101 0905 0103 010103
    1611 010102 03020002 050140 0905 0103 b4b4fc
    1833 01020001 060107 24020005 2826 02010a 030101
         061e 0014 0028 003c 0050 0064 0078 008c 00a0 00c8 012c 0190 0258 03e8 07d0 1388
    181a 01020002 060107 24020005 280d 010100 030102 040203e8 050113
    4630 01020005 0804 02160ec0 0904 0000a668 1b04 02625a00
         2a18 01020002 050114 0601e6 070101 080203e8 090207d0 0a0112
    472b 01020006 0407 64732d6c6c6400 0804 47868c00 290100
         2a13 030a6473636c617373696300 040564736c6c00
    5b0100";

/// The MICs and the end marker of the file.
pub const LOW_LATENCY_MICS: &str = "
    0610 513c11e7972144967c13274cc61b8ece 0710 51a1a85bfb4986b15467f3ed76dcde0e ff";

/// An extended CMTS MIC over types 3, 6, 18, 22, 23, 24, 25, 43, 70 and 71.
pub const EXTENDED_MIC: &str = "2b15 0803ffffff 060e 010101 0209 120023c00010000003";

/// The MICs of the low latency file with that extension.
pub const EXTENDED_MICS: &str = "
    0610 51d87ab0810bc2369789593a7269b1bb 0710 cefca5df51bf642b6d0319c3225b6a3f ff 00";

/// The target with the largest number.
pub const LARGEST_TARGET: &str = "
    030101 180c 01020001 2306 0204ffffffff
    0610 00f7e0529d7dd6cbd520ad2c7dbe5c15 0710 161a3e90233519f36078f45f7dc50a80 ff 0000";

/// The secret of all these files.
pub fn secret() -> Secret {
    Secret::new(b"bufferbloat")
}

/// Parses hexadecimal digits with spaces.
pub fn bytes(parts: &[&str]) -> Vec<u8> {
    let digits: String = parts.concat().split_whitespace().collect();
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    (0..digits.len()).step_by(2).map(pair).collect()
}

/// All complete files above.
pub fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("buffer control", bytes(&[BUFFER_CONTROL])),
        ("low latency", bytes(&[LOW_LATENCY, LOW_LATENCY_MICS])),
        ("extended MIC", bytes(&[LOW_LATENCY, EXTENDED_MIC, EXTENDED_MICS])),
        ("largest target", bytes(&[LARGEST_TARGET])),
    ]
}
