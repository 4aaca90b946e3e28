"""Generated from reflection.proto by `make protos`; not to be edited."""

from base64 import b85decode

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import enum_type_wrapper
from google.protobuf.message_factory import GetMessageClass

_SET = b85decode(
    b'3e^k>5OQT^Y-M9~X>V>WaB^>SZxRw`a&TiVa%E<0Wn*+{Z*DGjF(UH<3Kvsla&~2MQe|drWn*+{Z*Ed$adl;LbP^H@'
    b'1ZZz_bQl330VoMl1ZZz_bP_5G5N2s?WnW@>UuJ1+Wo}_@Wf%h>0VoMb08$QSX>4Uec}8h$Wo}_@WfC?D7G`N|WnW`&'
    b'ZggR3ZfS03UvqhFVsC611Rwz@2}l4^6lQ5`WkYXnbYW?3X>Mmzd2M2EY!YG$8D?p0WnW`&ZggR3ZfS03UuAf7Wo~n6'
    b'Z*CX`AOR=~G9)f%a&TiVa%E<0Wn*+{Z*DGjF)l@TbY*UHX>V>)WpQ<7b96`mQWs`vY-K}lZggR3ZfS03MR;^&ZgXjG'
    b'ZW2NY9bs&2UuAf7Wo~n6Z*E_1b!}p0a&upAW?yu9aAg<<AOR=|NB~k9VQg$gcywiMb7^mGPIYZ!WpZ;*W>k4_WfCO{'
    b'4Qy$1bYF92a&~EBWpfw@AOR=|NB~j{Y-w|JQ)O~?X=7z`LJ<lNZDn(FVP|Dua%FLKWpi{QW(p8RcywiMb7^mGQe|;<'
    b'Wpi{ACkhW^Z*Fv9X>Mt5XJ2%AaAg<)AOR=|QVwHpZggR3ZfS03RC#b^5-AE0Wq5RDZgXjGZeMP7ZDM6|7y=*xC<Rgv'
    b'Wq5RDZgXjGZccS=Vr6n7t^^7gQ)O~?WpYwwW^83+bZKvHQe|^+Z*FsC5*-Q(c42I3WM61+b95L1AOR=|QVDipY-waj'
    b'Z*z1KRtgYra%pF2ZeeU+a%FLKWpi{G0w4h>3o<J%XL4|3E^=jNY-M9~X>V>Wb}=qfWpZ|9a#CexY-M9~X>V>)WpQ<7'
    b'b97P<Z*pm8X>MU`Qe|;<Wpi{AW(pW)X>4U*WMy+>a%pgMZ*pI9Wpi+EZgXWA1Rwz@3o<G$XL4|3E^=jNY-M9~X>V>W'
    b'b}=qSX>4UgWpiV4X>fFJa#Ce;aBpsNWk>*07G`N|Wkh9jV{&P5bZ>G}Wpi+EZgXW4ata<{Y;0d;cywiMb7^mGUv716'
    b'Vr6o3Uvg!0aBpsNWf%n@0VoSHD=uepaAPiVWoB$;V{~b6ZZ38)E=72BWo~n6Z*ER?ZDM6|Qe|^+Z*FsCNB~kBVQg$g'
    b'cywiMb7^mGPIYZ!WpZ;;Wpi+EZgXW4UkVm%X>)X6b7gXNX=7z`Uvg!0aBpsNWf%q^0VoSHCoX4laAPiVWoB$;V{~b6'
    b'ZZ38)E=*~2bW>$=c4=c}Qe|^+Z*FsCNB~k4Y-w|JQ)O~?X=7z`Qe|^+Z*FsC5=sgVWpZ+Fa$j;~b8v5Nb7dF@AOR=~'
    b'G9fN!a&TiVa%E<0Wn*+{Z*DGjF)l@Na&K}{Wpi+EZgXWw08$NQa&m8SQe|^+Z*FsCLJ|rPZDn(FVP|Dua%FRHZ*FsC'
    b'B1{SvMrmwiL}hbha%pgMZ*o#)b8v5Nb7c}T3KeE)Y-L|$WpiV4X>fFJa$j(AZ**@M0U!e?3{n$jX>4UgWpiV4X>fFJ'
    b'a!_(_bZ;VR3KvCqbY*UHX>V>$b!}p0a#Ce;aBpsNWfCL`4q{<*WnXl8aAjX^VQpm?0U!Y=2~rGVVRL0vd2nS;VQpm+'
    b'DGCr}cywiMb7^mGUv716Vr6m|0w4n@1yT=XcywiMb7^mGPIYZ!WpW}^3KL9eb97T>a&~EBWm08xaBpsNWfDCK2Xkd|'
    b'c4=c}7y%#yC<`(pE@yIZV=i)KW^83+bZKvHE_N|4Q)O~?X=7zlWpi+EZgXW)2Xkd|c4=c}A|(nBQ)O~?X=7zlWpi+E'
    b'ZgXW45()%vVQpm?0U!Y=2~q@ZVQpn1Qwj}5a&m8SQe|^+Z*FsC5*-Q(WpZ+Fa$jR_WMvouAOR=^QVC^pa&K}&Z)9Z>'
    b'BMJ>=a&m8SUu|V`b75y?7y=*xC<#&wWpZ+Fa!qA(b75y?GKm2S5L0Dxc4cx>WoB$;V{~b6ZW4706jNn#c4cx>WoB$;'
    b'V{~b6Zb@!tZxSmmXL4|3E^=jNY-M9~X>V>Wb}=qfWpZ|9a#CexY-M9~X>V>)WpQ<7b95RkE@yIZV=i)KW^83+bZKvH'
    b'E_N|4Q)O~?WpYwwW^83+bZKvHQe|^+Z*FsCC;>15Vg_(>Z**@n'
)

POOL = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(_SET).file:
    POOL.Add(_file)
_own = POOL.FindFileByName("reflection.proto")
DESCRIPTOR = _own
for _name, _message in _own.message_types_by_name.items():
    globals()[_name] = GetMessageClass(_message)
for _name, _enum in _own.enum_types_by_name.items():
    globals()[_name] = enum_type_wrapper.EnumTypeWrapper(_enum)
    globals().update({_value.name: _value.number for _value in _enum.values})
